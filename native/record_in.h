/* Records as they lie in a batch. */
#ifndef MILLSTREAM_RECORD_IN_H
#define MILLSTREAM_RECORD_IN_H

#include "kernel.h"
#include "numbers.h"

#define MIN_RECORD_BYTES 7
#define LOG_APPEND_TIME 0x08

MS_INLINE void set_fault(ms_fault *fault, int64_t code, int64_t index, int64_t position) {
    fault->code = code;
    fault->index = index;
    fault->position = position;
}

/* A record as it lies in its batch; a length below 0 is null. */
typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length;
    int32_t value_length;
    int32_t header_count;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers; /* the first one, after their count */
    const uint8_t *end;
} record;

/* Reads a length and passes over what it counts. */
MS_INLINE const uint8_t *read_field(const uint8_t *at, const uint8_t *end, int32_t *length,
                                    const uint8_t **field) {
    at = read_i32(at, end, length);
    if (MS_UNLIKELY(!at)) return at;
    *field = at;
    if (*length > 0) {
        if (MS_UNLIKELY(*length > end - at)) return (const uint8_t *)0;
        at += *length;
    }
    return at;
}

/* One header; 0 when it does not fit or has no key. */
MS_INLINE const uint8_t *read_header(const uint8_t *at, const uint8_t *end, int32_t *key_length,
                                     const uint8_t **key, int32_t *value_length,
                                     const uint8_t **value) {
    at = read_field(at, end, key_length, key);
    if (!at || *key_length < 0) return (const uint8_t *)0;
    return read_field(at, end, value_length, value);
}

/* Reads the record at a place, except for the headers themselves. */
MS_INLINE int read_record(const uint8_t *at, const uint8_t *end, record *out) {
    int32_t length;
    at = read_i32(at, end, &length);
    if (MS_UNLIKELY(!at)) return MS_VARINT;
    if (MS_UNLIKELY(length < MIN_RECORD_BYTES - 1 || length > end - at)) return MS_RECORD;
    end = at + length;
    out->end = end;
    at = read_i64(at + 1, end, &out->timestamp_delta);
    if (MS_UNLIKELY(!at)) return MS_VARINT;
    at = read_i32(at, end, &out->offset_delta);
    if (MS_UNLIKELY(!at)) return MS_VARINT;
    at = read_field(at, end, &out->key_length, &out->key);
    if (MS_UNLIKELY(!at)) return MS_FIELD;
    at = read_field(at, end, &out->value_length, &out->value);
    if (MS_UNLIKELY(!at)) return MS_FIELD;
    at = read_i32(at, end, &out->header_count);
    if (MS_UNLIKELY(!at)) return MS_VARINT;
    out->headers = at;
    if (MS_LIKELY(!out->header_count)) return at == end ? MS_OK : MS_RECORD;
    /* A header takes two bytes at least. */
    return out->header_count < 0 || out->header_count > (end - at) / 2 ? MS_HEADERS : MS_OK;
}

/* Whether the headers of a record fill it. */
MS_INLINE int check_headers(const record *each) {
    const uint8_t *at = each->headers, *key, *value;
    int32_t key_length, value_length;
    for (int32_t i = 0; i < each->header_count; i++) {
        at = read_header(at, each->end, &key_length, &key, &value_length, &value);
        if (!at) return MS_HEADERS;
    }
    return at == each->end ? MS_OK : MS_RECORD;
}

MS_INLINE int64_t offset_of(const ms_batch *batch, const record *each) {
    return add_wrapping(batch->base_offset, each->offset_delta);
}

MS_INLINE int64_t timestamp_of(const ms_batch *batch, const record *each) {
    return batch->attributes & LOG_APPEND_TIME
               ? batch->max_timestamp
               : add_wrapping(batch->base_timestamp, each->timestamp_delta);
}

#endif
