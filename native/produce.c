/* Checks the records of a produced batch. See produce.h. */
#include "produce.h"
#include "numbers.h"
#include "record_in.h"

#define HEADER_SIZE 61
#define LENGTH_OVERHEAD 12
#define ATTRIBUTES 21
#define MAGIC 2
#define CODEC 0x07
#define CONTROL 0x20

int32_t ms_produce_abi(void) { return MS_PRODUCE_ABI; }

/* Times beyond 64 bits stop at their ends: no record's time lies there. */
MS_INLINE int64_t earliest_time(const ms_produce_rules *rules, int64_t now) {
    int64_t earliest;
    if (rules->any_time || __builtin_sub_overflow(now, rules->before_ms, &earliest))
        return INT64_MIN;
    return earliest;
}

MS_INLINE int64_t latest_time(const ms_produce_rules *rules, int64_t now) {
    int64_t latest;
    if (rules->any_time || __builtin_add_overflow(now, rules->after_ms, &latest)) return INT64_MAX;
    return latest;
}

void ms_check_records(const ms_produce_rules *rules, const uint8_t *records, int64_t size,
                      int64_t first, int64_t count, int64_t base_timestamp, int64_t now,
                      ms_produced *out) {
    const uint8_t *at = records, *end = records + size;
    int64_t earliest = earliest_time(rules, now), latest = latest_time(rules, now);
    int64_t needs_keys = rules->needs_keys, largest = -1, in_order = 1;
    set_fault(&out->fault, MS_OK, 0, 0);
    for (int64_t index = first; index < count; index++) {
        record each;
        int code = read_record(at, end, &each);
        if (MS_UNLIKELY(!code && each.header_count)) code = check_headers(&each);
        if (MS_UNLIKELY(code)) {
            set_fault(&out->fault, code, index, at - records);
            break;
        }
        int64_t timestamp = add_wrapping(base_timestamp, each.timestamp_delta);
        if (timestamp > largest) largest = timestamp;
        in_order &= each.offset_delta == index;
        if (MS_UNLIKELY(needs_keys && each.key_length < 0)) {
            set_fault(&out->fault, MS_NULL_KEY, index, at - records);
            break;
        }
        if (MS_UNLIKELY((timestamp < earliest || timestamp > latest) && timestamp != -1)) {
            set_fault(&out->fault, MS_TIMESTAMP, index, at - records);
            break;
        }
        at = each.end;
    }
    if (!out->fault.code && at != end) set_fault(&out->fault, MS_PAYLOAD, count, at - records);
    out->largest_timestamp = largest;
    out->in_order = in_order;
}

int64_t ms_check_batch(const ms_produce_rules *rules, const uint8_t *batch, int64_t size,
                       int64_t now) {
    if (size < HEADER_SIZE) return MS_NOT_PLAIN;
    int64_t length = (int32_t)get_u32(batch + 8);
    int64_t last_delta = (int32_t)get_u32(batch + 23);
    int64_t base_timestamp = (int64_t)get_u64(batch + 27);
    int64_t producer_id = (int64_t)get_u64(batch + 43);
    int32_t base_sequence = (int32_t)get_u32(batch + 53);
    int64_t count = (int32_t)get_u32(batch + 57);
    if (batch[16] != MAGIC || length + LENGTH_OVERHEAD != size) return MS_NOT_PLAIN;
    if (batch[ATTRIBUTES + 1] & (CODEC | LOG_APPEND_TIME | CONTROL)) return MS_NOT_PLAIN;
    if (count <= 0 || last_delta != count - 1) return MS_NOT_PLAIN;
    if (base_sequence < 0 && producer_id >= 0) return MS_NOT_PLAIN;
    if (ms_crc32c(0, batch + ATTRIBUTES, size - ATTRIBUTES) != get_u32(batch + 17))
        return MS_NOT_PLAIN;
    ms_produced found;
    ms_check_records(rules, batch + HEADER_SIZE, size - HEADER_SIZE, 0, count, base_timestamp, now,
                     &found);
    return found.fault.code ? MS_NOT_PLAIN : found.largest_timestamp;
}

/* Py_buffer, which is part of the stable ABI. */
typedef struct {
    void *buf, *obj;
    intptr_t len, itemsize;
    int readonly, ndim;
    char *format;
    intptr_t *shape, *strides, *suboffsets;
    void *internal;
} py_buffer;

int64_t ms_check_produced(const ms_produce_rules *rules, const ms_buffers *python, void *object,
                          int64_t now) {
    py_buffer view;
    if (python->get_buffer(object, &view, 0)) return MS_NOT_PLAIN;
    int64_t largest = ms_check_batch(rules, view.buf, view.len, now);
    python->release_buffer(&view);
    return largest;
}
