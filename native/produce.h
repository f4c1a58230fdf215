/* Checks the records of a produced batch (Kafka: LogValidator).
 *
 * What millstream.records.record_checks does in Python, which decides what is right and words every
 * refusal: these functions tell that a batch is plain, so that nothing is left to decide, or the
 * first rule that it breaks. Mirrored by millstream.records.produce_kernel. Input is never trusted;
 * nothing is allocated or kept between calls. */
#ifndef MILLSTREAM_PRODUCE_H
#define MILLSTREAM_PRODUCE_H

#include "kernel.h"

/* Raised with every change below; the loader refuses another number. */
#define MS_PRODUCE_ABI 2

MS_API int32_t ms_produce_abi(void);

/* Codes of ms_fault beside those of kernel.h. */
enum {
    MS_NULL_KEY = 20,  /* a record of a compacted topic has no key */
    MS_TIMESTAMP = 21, /* a record's time is out of range */
};

/* What a topic asks of its records; times in milliseconds, none negative. */
typedef struct {
    int64_t before_ms;  /* a record's time lies at most this far behind the broker's */
    int64_t after_ms;   /* and at most this far ahead of it; -1, no time, is always in range */
    int64_t needs_keys; /* 1: a null key is a fault */
    int64_t any_time;   /* 1: times are not looked at */
    /* receive.h alone asks for these: */
    int64_t max_bytes;    /* of a batch */
    int64_t looks_inside; /* 1: compressed records are to be looked at */
    int64_t codec;        /* that compressed records must have; -1: any */
} ms_produce_rules;

/* What the records of a batch were found to be. */
typedef struct {
    ms_fault fault;            /* the first rule that is broken: by which record, at which byte */
    int64_t largest_timestamp; /* at least -1 */
    int64_t in_order;          /* 1: the offset deltas are 0, 1, 2 ... */
} ms_produced;

/* Checks that records, decompressed, are those of a batch of count records from the one numbered
 * first on, and that they keep the rules at the time now. */
MS_API void ms_check_records(const ms_produce_rules *rules, const uint8_t *records, int64_t size,
                             int64_t first, int64_t count, int64_t base_timestamp, int64_t now,
                             ms_produced *out);

/* What ms_check_batch and ms_check_produced answer where something is left to decide. */
#define MS_NOT_PLAIN (-2)

/* Returns the largest timestamp, at least -1, of a whole batch of magic 2 of which the CRC holds,
 * the header does not contradict itself and the records keep the rules; else MS_NOT_PLAIN: also for
 * a batch that is compressed, a control batch, or claims log append time. Whatever the base offset
 * and the leader epoch. */
MS_API int64_t ms_check_batch(const ms_produce_rules *rules, const uint8_t *batch, int64_t size,
                              int64_t now);

/* Functions of the Python that calls: PyObject_GetBuffer and PyBuffer_Release. */
typedef struct {
    int (*get_buffer)(void *object, void *view, int flags);
    void (*release_buffer)(void *view);
} ms_buffers;

/* ms_check_batch for the bytes of an object, in one call. Must be called with the interpreter's
 * lock; where the object gives no buffer an exception is set. */
MS_API int64_t ms_check_produced(const ms_produce_rules *rules, const ms_buffers *python,
                                 void *object, int64_t now);

#endif
