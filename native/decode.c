/* Record batches to columns: find the batches, measure their records, write the columns. */
#include "kernel.h"
#include "numbers.h"
#include "record_in.h"

#define HEADER_SIZE 61
#define LENGTH_OVERHEAD 12
#define CONTROL 0x20
#define CODECS 0x07

int32_t ms_abi(void) { return MS_ABI; }

void ms_find_batches(const uint8_t *data, int64_t size, int64_t position, int64_t start_offset,
                     int64_t end_offset, int32_t check_crcs, ms_batch *out, int64_t capacity,
                     ms_walk *walk, ms_fault *fault) {
    set_fault(fault, MS_OK, 0, 0);
    walk->found = 0;
    walk->next_offset = start_offset;
    walk->at_end = walk->rows = walk->compressed = 0;
    for (;;) {
        walk->position = position;
        if (position < 0 || size - position < HEADER_SIZE) return;
        const uint8_t *header = data + position;
        int64_t base_offset = (int64_t)get_u64(header);
        int64_t length = (int32_t)get_u32(header + 8);
        int64_t last_delta = (int32_t)get_u32(header + 23);
        int32_t count = (int32_t)get_u32(header + 57);
        int32_t attributes = header[21] << 8 | header[22];
        if (header[16] != 2 || length < HEADER_SIZE - LENGTH_OVERHEAD || last_delta < 0 ||
            count < 0 || base_offset < 0 || base_offset > INT64_MAX - last_delta) {
            set_fault(fault, MS_BATCH_HEADER, walk->found, position);
            return;
        }
        int64_t batch_size = length + LENGTH_OVERHEAD;
        if (batch_size > size - position) return;
        if (base_offset >= end_offset) {
            walk->at_end = 1;
            return;
        }
        /* Of every batch: damage may be what says that there is nothing to be had of one. */
        if (check_crcs &&
            ms_crc32c(0, header + 21, batch_size - 21) != get_u32(header + 17)) {
            set_fault(fault, MS_CRC, walk->found, position);
            return;
        }
        /* The last offset may be the largest number there is: compare before adding one. */
        int64_t last_offset = base_offset + last_delta;
        if (last_offset >= end_offset) {
            walk->next_offset = end_offset;
        } else if (last_offset >= walk->next_offset) {
            walk->next_offset = last_offset + 1;
        }
        if (count && last_offset >= start_offset && !(attributes & CONTROL)) {
            if (out) {
                if (walk->found >= capacity) {
                    set_fault(fault, MS_CAPACITY, walk->found, position);
                    return;
                }
                ms_batch *batch = out + walk->found;
                batch->records = header + HEADER_SIZE;
                batch->size = batch_size - HEADER_SIZE;
                batch->position = position;
                batch->base_offset = base_offset;
                batch->base_timestamp = (int64_t)get_u64(header + 27);
                batch->max_timestamp = (int64_t)get_u64(header + 35);
                batch->count = count;
                batch->attributes = attributes;
            }
            walk->found++;
            walk->rows += count;
            walk->compressed += (attributes & CODECS) != 0;
        }
        position += batch_size;
    }
}

/* Checks the headers of a record and adds what they take. */
static int measure_headers(const record *each, ms_sizes *sizes) {
    const uint8_t *at = each->headers, *key, *value;
    int32_t key_length, value_length;
    for (int32_t i = 0; i < each->header_count; i++) {
        at = read_header(at, each->end, &key_length, &key, &value_length, &value);
        if (!at) return MS_HEADERS;
        if (sizes) {
            sizes->header_key_bytes += key_length;
            if (value_length > 0) sizes->header_value_bytes += value_length;
        }
    }
    if (sizes) sizes->headers += each->header_count;
    return at == each->end ? MS_OK : MS_RECORD;
}

void ms_measure(const ms_batch *batches, int64_t count, int64_t start_offset, int64_t end_offset,
                ms_sizes *sizes, ms_fault *fault) {
    ms_sizes sum = {0, 0, 0, 0, 0, 0};
    record each;
    set_fault(fault, MS_OK, 0, 0);
    for (int64_t i = 0; i < count; i++) {
        const ms_batch *batch = batches + i;
        const uint8_t *at = batch->records, *end = at + batch->size;
        int code = MS_OK;
        if (batch->count < 0 || batch->size / MIN_RECORD_BYTES < batch->count) {
            set_fault(fault, MS_PAYLOAD, i, 0);
            return;
        }
        for (int32_t left = batch->count; left; left--) {
            code = read_record(at, end, &each);
            if (MS_UNLIKELY(code != MS_OK)) break;
            int64_t offset = offset_of(batch, &each);
            int wanted = offset >= start_offset && offset < end_offset;
            if (MS_UNLIKELY(each.header_count)) {
                code = measure_headers(&each, wanted ? &sum : (ms_sizes *)0);
                if (code != MS_OK) break;
            }
            if (MS_LIKELY(wanted)) {
                sum.rows++;
                sum.key_bytes += each.key_length > 0 ? each.key_length : 0;
                sum.value_bytes += each.value_length > 0 ? each.value_length : 0;
            }
            at = each.end;
        }
        if (code == MS_OK && at != end) code = MS_PAYLOAD;
        if (code != MS_OK) {
            set_fault(fault, code, i, at - batch->records);
            return;
        }
    }
    *sizes = sum;
}

void ms_bound(const ms_batch *batches, int64_t count, ms_sizes *sizes, ms_fault *fault) {
    ms_sizes sum = {0, 0, 0, 0, 0, 0};
    set_fault(fault, MS_OK, 0, 0);
    for (int64_t i = 0; i < count; i++) {
        if (batches[i].count < 0 || batches[i].size / MIN_RECORD_BYTES < batches[i].count) {
            set_fault(fault, MS_PAYLOAD, i, 0);
            return;
        }
        sum.rows += batches[i].count;
        sum.value_bytes += batches[i].size;
    }
    sum.key_bytes = sum.value_bytes;
    *sizes = sum;
}

/* A column of byte strings that is being written. */
typedef struct {
    ms_binary_out *out;
    int64_t row;
    int64_t used;
} writer;

static void begin(writer *column, ms_binary_out *out, int64_t rows) {
    column->out = out;
    column->row = 0;
    column->used = 0;
    out->nulls = 0;
    if (!out->offsets) return;
    out->offsets[0] = 0;
    if (out->validity) __builtin_memset(out->validity, 0xFF, (size_t)((rows + 7) / 8));
}

/* Adds a cell; 0 when there is no room for it. */
MS_INLINE int put(writer *column, const uint8_t *data, int32_t length) {
    ms_binary_out *out = column->out;
    if (!out->offsets) return 1;
    if (length > 0) {
        if (MS_UNLIKELY(length > out->capacity - column->used)) return 0;
        __builtin_memcpy(out->data + column->used, data, (size_t)length);
        column->used += length;
    } else if (length < 0) {
        if (out->validity)
            out->validity[column->row >> 3] &= (uint8_t) ~(1u << (column->row & 7));
        out->nulls++;
    }
    out->offsets[++column->row] = (int32_t)column->used;
    return 1;
}

/* Writes the headers of one record; MS_CAPACITY without room. */
static int put_headers(const record *each, int64_t capacity, writer *keys, writer *values) {
    const uint8_t *at = each->headers, *key, *value;
    int32_t key_length, value_length;
    if (each->header_count > capacity - keys->row) return MS_CAPACITY;
    for (int32_t i = 0; i < each->header_count; i++) {
        at = read_header(at, each->end, &key_length, &key, &value_length, &value);
        if (!at) return MS_HEADERS;
        if (!put(keys, key, key_length) || !put(values, value, value_length)) return MS_CAPACITY;
    }
    return at == each->end ? MS_OK : MS_RECORD;
}

void ms_decode(const ms_batch *batches, int64_t count, int64_t start_offset, int64_t end_offset,
               ms_columns *columns, ms_fault *fault) {
    writer keys, values, header_keys, header_values;
    int64_t row = 0, rows = columns->rows;
    int64_t factor = columns->timestamp_factor > 0 ? columns->timestamp_factor : 1;
    int64_t most_time = INT64_MAX / factor, least_time = INT64_MIN / factor;
    record each;
    set_fault(fault, MS_OK, 0, 0);
    begin(&keys, &columns->key, rows);
    begin(&values, &columns->value, rows);
    begin(&header_keys, &columns->header_key, columns->header_capacity);
    begin(&header_values, &columns->header_value, columns->header_capacity);
    columns->header_nulls = 0;
    if (columns->header_offsets) {
        columns->header_offsets[0] = 0;
        __builtin_memset(columns->header_validity, 0xFF, (size_t)((rows + 7) / 8));
    }
    for (int64_t i = 0; i < count; i++) {
        const ms_batch *batch = batches + i;
        const uint8_t *at = batch->records, *end = at + batch->size;
        int append_time = (batch->attributes & LOG_APPEND_TIME) != 0, code = MS_OK;
        for (int32_t left = batch->count; left > 0; left--) {
            code = read_record(at, end, &each);
            if (MS_UNLIKELY(code != MS_OK)) break;
            int64_t offset = offset_of(batch, &each);
            if (MS_UNLIKELY(offset < start_offset || offset >= end_offset)) {
                if (each.header_count) code = measure_headers(&each, (ms_sizes *)0);
                if (code != MS_OK) break;
                at = each.end;
                continue;
            }
            if (MS_UNLIKELY(row >= rows || !put(&keys, each.key, each.key_length) ||
                            !put(&values, each.value, each.value_length))) {
                code = MS_CAPACITY;
                break;
            }
            if (columns->offset) columns->offset[row] = offset;
            if (columns->timestamp) {
                int64_t time = append_time
                                   ? batch->max_timestamp
                                   : add_wrapping(batch->base_timestamp, each.timestamp_delta);
                time = time > most_time ? most_time : time < least_time ? least_time : time;
                columns->timestamp[row] = time * factor;
            }
            if (columns->timestamp_type) columns->timestamp_type[row] = append_time;
            if (MS_UNLIKELY(each.header_count)) {
                code = columns->header_offsets
                           ? put_headers(&each, columns->header_capacity, &header_keys,
                                         &header_values)
                           : measure_headers(&each, (ms_sizes *)0);
                if (code != MS_OK) break;
            }
            if (columns->header_offsets) {
                if (!each.header_count) {
                    columns->header_validity[row >> 3] &= (uint8_t) ~(1u << (row & 7));
                    columns->header_nulls++;
                }
                columns->header_offsets[row + 1] = (int32_t)header_keys.row;
            }
            at = each.end;
            row++;
        }
        if (code == MS_OK && at != end) code = MS_PAYLOAD;
        if (code != MS_OK) {
            set_fault(fault, code, i, at - batch->records);
            return;
        }
    }
    columns->rows = row;
}

MS_INLINE int64_t stop_of(int64_t start, int32_t length) {
    return length < 0 ? -1 : start + length;
}

static int locate_headers(const record *each, const uint8_t *arena, int64_t slot,
                          ms_cells *cells) {
    const uint8_t *at = each->headers, *key, *value;
    int32_t key_length, value_length;
    if (each->header_count > cells->headers - slot) return MS_CAPACITY;
    for (int32_t i = 0; i < each->header_count; i++, slot++) {
        at = read_header(at, each->end, &key_length, &key, &value_length, &value);
        if (!at) return MS_HEADERS;
        cells->header_key_start[slot] = key - arena;
        cells->header_key_stop[slot] = stop_of(key - arena, key_length);
        cells->header_value_start[slot] = value - arena;
        cells->header_value_stop[slot] = stop_of(value - arena, value_length);
    }
    return at == each->end ? MS_OK : MS_RECORD;
}

void ms_locate(const ms_batch *batches, int64_t count, const uint8_t *arena, ms_cells *cells,
               ms_fault *fault) {
    int64_t row = 0, slot = 0;
    record each;
    set_fault(fault, MS_OK, 0, 0);
    for (int64_t i = 0; i < count; i++) {
        const ms_batch *batch = batches + i;
        const uint8_t *at = batch->records, *end = at + batch->size;
        int append_time = (batch->attributes & LOG_APPEND_TIME) != 0;
        int code = batch->count < 0 || batch->count > cells->rows - row ? MS_CAPACITY : MS_OK;
        for (int32_t left = batch->count; left > 0 && code == MS_OK; left--, row++) {
            code = read_record(at, end, &each);
            if (MS_UNLIKELY(code != MS_OK)) break;
            cells->offset[row] = offset_of(batch, &each);
            cells->timestamp[row] =
                append_time ? batch->max_timestamp
                            : add_wrapping(batch->base_timestamp, each.timestamp_delta);
            cells->key_start[row] = each.key - arena;
            cells->key_stop[row] = stop_of(each.key - arena, each.key_length);
            cells->value_start[row] = each.value - arena;
            cells->value_stop[row] = stop_of(each.value - arena, each.value_length);
            cells->header_count[row] = each.header_count;
            if (MS_UNLIKELY(each.header_count)) {
                code = locate_headers(&each, arena, slot, cells);
                slot += each.header_count;
            }
            at = each.end;
        }
        if (code == MS_OK && at != end) code = MS_PAYLOAD;
        if (code != MS_OK) {
            set_fault(fault, code, i, at - batch->records);
            return;
        }
    }
    cells->rows = row;
    cells->headers = slot;
}
