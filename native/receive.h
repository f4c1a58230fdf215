/* A produced batch in one call: header, CRC and records checked, and its header as an object. Made
 * by ms_codec_function; mirrored by millstream.records.produce_kernel. */
#ifndef MILLSTREAM_RECEIVE_H
#define MILLSTREAM_RECEIVE_H

#include "produce.h"

/* The fields of a batch header in their order, without the buffer. */
enum { MS_BATCH_FIELDS = 13 };

/* Where a millstream.records.batch.Batch keeps what it knows.
 *
 * MS_RECEIVE: (view, address of ms_produce_rules, now in milliseconds, version) -> the batch if it is to be
 * appended as it is, None where Python has to decide. */
typedef struct {
    void *batch_type; /* borrowed */
    int32_t buffer_slot;
    int32_t slots[MS_BATCH_FIELDS];
} ms_receiver;

/* Where batches lie in a log.
 *
 * MS_FIND_BATCH: (bytes, where in them the first batch begins, its position in the log, the size of
 * the log, offset) -> where the first batch lies whose last offset is at least that, the position
 * at which to go on where the bytes hold none, or None where Python has to decide. */
typedef struct {
    void *position_type; /* borrowed: millstream.storage.file_records.BatchPosition, a tuple */
} ms_finder;

#endif
