/* Checks many batches in a row and notes what recovery and followers have to know of them.
 *
 * What millstream.records.scan does in Python, which decides what is right; mirrored by
 * millstream.records.scan_kernel. Input is never trusted; nothing is allocated or kept between
 * calls. */
#ifndef MILLSTREAM_SCAN_H
#define MILLSTREAM_SCAN_H

#include "kernel.h"

/* Raised with every change below; the loader refuses another number. */
#define MS_SCAN_ABI 2

MS_API int32_t ms_scan_abi(void);

/* How many batches of a producer are remembered. */
#define MS_BATCHES_KEPT 5

/* An entry for both indexes. */
typedef struct {
    int64_t last_offset;
    int64_t position; /* in the segment */
    int64_t largest_timestamp;
    int64_t offset_of_largest;
} ms_index_entry;

/* The first batch of a leader epoch. */
typedef struct {
    int64_t epoch;
    int64_t base_offset;
} ms_epoch_start;

/* The last data batches of one producer: places[n % MS_BATCHES_KEPT] is where the nth begins. */
typedef struct {
    int64_t producer_id;
    int64_t batches;
    int64_t in_transaction;
    int64_t places[MS_BATCHES_KEPT];
} ms_producer_batches;

typedef struct {
    /* Where the walk goes on, and in the end how far it came. */
    uint64_t next_offset;
    int64_t unindexed_bytes;
    int64_t largest_timestamp;
    int64_t offset_of_largest;
    int64_t latest_epoch;
    /* The rules. */
    int64_t max_offset;
    int64_t interval_bytes;
    int64_t producers_from; /* producers' batches before this offset do not count */
    int64_t epochs_grow;    /* 1: a batch of an older leader epoch than the latest is not accepted */
    /* Where findings go. */
    ms_index_entry *entries;
    ms_epoch_start *epochs;
    int64_t *marks; /* where markers begin, and the first batch of a producer after one */
    ms_producer_batches *producers;
    uint32_t *slots;   /* a table of the producers: 1 << slot_bits, more than capacity */
    int64_t slot_bits; /* 1 to 31 */
    int64_t capacity;  /* of each of the four */
    int64_t entry_count;
    int64_t epoch_count;
    int64_t mark_count;
    int64_t producer_count;
    int64_t is_full; /* 1: it stopped because there is no room for what more it may find */
} ms_scan;

/* Accepts whole, sound batches from the start of data, which lies at position of the segment;
 * returns how many bytes of them there are. Counts begin anew with each call. */
MS_API int64_t ms_scan_batches(ms_scan *scan, const uint8_t *data, int64_t size, int64_t position);

#endif
