/* See receive.h. */
#include "receive.h"
#include "codec_parts.h"

#define HEADER_SIZE 61
#define LENGTH_OVERHEAD 12
#define MAGIC_AT 16
#define ATTRIBUTES_AT 21
#define CRC_AT 17
#define LAST_DELTA_AT 23
#define MAX_TIMESTAMP_AT 35
#define PRODUCER_AT 43
#define SEQUENCE_AT 53
#define COUNT_AT 57
#define CODEC 0x07
#define LOG_APPEND_TIME 0x08
#define CONTROL 0x20
#define ZSTD 4
#define ZSTD_SINCE_VERSION 7
#define MIN_RECORD_BYTES 7
#define EXPANSION 4096

/* Whether records that are compressed may be left unread. The rules are those of
 * millstream.records.validation. */
static int is_plain_compressed(const ms_produce_rules *rules, const py_buffer *batch, int64_t now,
                               int64_t version) {
    const uint8_t *header = batch->buf;
    int codec = header[ATTRIBUTES_AT + 1] & CODEC;
    int64_t max_timestamp = (int64_t)get_u64(header + MAX_TIMESTAMP_AT), latest;
    int64_t count = (int32_t)get_u32(header + COUNT_AT);
    if (header[MAGIC_AT] != 2 || (int64_t)(int32_t)get_u32(header + 8) + LENGTH_OVERHEAD != batch->len)
        return 0;
    if (rules->looks_inside || (rules->codec >= 0 && rules->codec != codec)) return 0;
    if (codec > ZSTD || (codec == ZSTD && version < ZSTD_SINCE_VERSION)) return 0;
    if (header[ATTRIBUTES_AT + 1] & (LOG_APPEND_TIME | CONTROL)) return 0;
    if (count <= 0 || (int32_t)get_u32(header + LAST_DELTA_AT) != count - 1) return 0;
    if ((int32_t)get_u32(header + SEQUENCE_AT) < 0 && (int64_t)get_u64(header + PRODUCER_AT) >= 0)
        return 0;
    if (count * MIN_RECORD_BYTES > (batch->len - HEADER_SIZE) * EXPANSION) return 0;
    if (__builtin_add_overflow(now, rules->after_ms, &latest)) return 0;
    if (max_timestamp < -1 || max_timestamp > latest) return 0;
    return ms_crc32c(0, header + ATTRIBUTES_AT, batch->len - ATTRIBUTES_AT) ==
           get_u32(header + CRC_AT);
}

static int is_to_be_appended(const ms_produce_rules *rules, const py_buffer *batch, int64_t now,
                             int64_t version) {
    const uint8_t *header = batch->buf;
    if (batch->len < HEADER_SIZE || batch->len > rules->max_bytes || rules->any_time) return 0;
    if (get_u64(header)) return 0;
    if (header[ATTRIBUTES_AT + 1] & CODEC) return is_plain_compressed(rules, batch, now, version);
    int64_t largest = ms_check_batch(rules, header, batch->len, now);
    return largest != MS_NOT_PLAIN && largest == (int64_t)get_u64(header + MAX_TIMESTAMP_AT);
}

/* The numbers of a batch header, in their order, into their slots. */
static int read_header(const ms_receiver *to, const uint8_t *at, void *batch) {
    static const int8_t widths[MS_BATCH_FIELDS] = {8, 4, 4, 1, -4, 2, 4, 8, 8, 8, 2, 4, 4};
    for (int i = 0; i < MS_BATCH_FIELDS; i++) {
        int64_t number;
        switch (widths[i]) {
        case 1: number = (int8_t)*at; break;
        case 2: number = (int16_t)(at[0] << 8 | at[1]); break;
        case 4: number = (int32_t)get_u32(at); break;
        case -4: number = get_u32(at); break;
        default: number = (int64_t)get_u64(at);
        }
        if (!put_int(batch, to->slots[i], number)) return 0;
        at += widths[i] < 0 ? -widths[i] : widths[i];
    }
    return 1;
}

static void *new_batch(const ms_receiver *to, const uint8_t *data, void *view) {
    void *batch = py.new_instance(to->batch_type, 0);
    if (!batch) return batch;
    *(void **)((char *)batch + to->buffer_slot) = shared(view);
    if (read_header(to, data, batch)) return batch;
    py.drop(batch);
    return (void *)0;
}

void *ms_receive(void *self, void *const *arguments, intptr_t count) {
    const ms_receiver *to = py.capsule_pointer(self, ms_capsule);
    int64_t rules, now, version;
    py_buffer view;
    if (count != 4 || type_of(arguments[0]) != py.view_type || !take_int(arguments[1], &rules) ||
        !take_int(arguments[2], &now) || !take_int(arguments[3], &version))
        return shared(py.none);
    if (py.get_buffer(arguments[0], &view, 0)) {
        py.clear_error();
        return shared(py.none);
    }
    int plain = is_to_be_appended((const ms_produce_rules *)(intptr_t)rules, &view, now, version);
    void *result = plain ? new_batch(to, view.buf, arguments[0]) : shared(py.none);
    py.release_buffer(&view);
    return result;
}

enum { POSITION_FIELDS = 6 };

/* A named tuple of numbers. */
static void *new_position(void *type, const int64_t *numbers) {
    void *made = py.new_instance(type, POSITION_FIELDS);
    for (int i = 0; made && i < POSITION_FIELDS; i++) {
        void *number = py.new_int(numbers[i]);
        if (!number || py.set_in_tuple(made, i, number)) {
            py.drop(made);
            return (void *)0;
        }
    }
    return made;
}

typedef struct {
    int64_t at, position, end, offset;
} search;

static void *find_in(const ms_finder *finder, const py_buffer *bytes, search from) {
    while (bytes->len - from.at >= HEADER_SIZE && from.end - from.position >= HEADER_SIZE) {
        const uint8_t *header = (const uint8_t *)bytes->buf + from.at;
        int64_t base_offset = (int64_t)get_u64(header);
        int64_t size = (int64_t)(int32_t)get_u32(header + 8) + LENGTH_OVERHEAD;
        int64_t delta = (int32_t)get_u32(header + LAST_DELTA_AT), last_offset;
        if (size < HEADER_SIZE || header[MAGIC_AT] != 2 || delta < 0 || base_offset < 0)
            return shared(py.none);
        if (__builtin_add_overflow(base_offset, delta, &last_offset)) return shared(py.none);
        if (last_offset >= from.offset) {
            const int64_t found[POSITION_FIELDS] = {
                from.position, size, base_offset, last_offset, (int32_t)get_u32(header + 12),
                (int64_t)get_u64(header + MAX_TIMESTAMP_AT)};
            if (from.end - from.position < size) return shared(py.none);
            return new_position(finder->position_type, found);
        }
        from.at += size;
        from.position += size;
    }
    return py.new_int(from.position);
}

void *ms_find_batch(void *self, void *const *arguments, intptr_t count) {
    const ms_finder *finder = py.capsule_pointer(self, ms_capsule);
    search from;
    py_buffer bytes;
    if (count != 5 || !take_int(arguments[1], &from.at) || !take_int(arguments[2], &from.position) ||
        !take_int(arguments[3], &from.end) || !take_int(arguments[4], &from.offset) ||
        from.at < 0 || from.position < 0)
        return shared(py.none);
    if (py.get_buffer(arguments[0], &bytes, 0)) {
        py.clear_error();
        return shared(py.none);
    }
    void *found = find_in(finder, &bytes, from);
    py.release_buffer(&bytes);
    return found;
}
