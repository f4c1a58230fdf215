/* Columns to record batches: byte for byte what millstream.records.builder makes. */
#include "binary_in.h"
#include "kernel.h"
#include "numbers.h"

#define HEADER_SIZE 61
#define LENGTH_OVERHEAD 12
#define CRC_AT 17
#define ATTRIBUTES_AT 21
#define LOG_APPEND_TIME 0x08

/* No record is longer: its length is a number of 32 bits, and so is the batch's. */
#define MAX_BYTES (INT32_MAX - 1024)

typedef struct {
    const uint8_t *data;
    int64_t length;
} cell;

/* A row before it is written. headers is how the end of the record is made: from a table's columns
 * when table is set, else from the bytes given. */
typedef struct {
    int64_t timestamp;
    cell key;
    cell value;
    cell encoded_headers;
    const ms_table *table;
    int64_t first_header;
    int64_t header_count;
    int64_t headers_size;
} row_in;

static void set_fault(ms_fault *fault, int64_t code, int64_t index, int64_t position) {
    fault->code = code;
    fault->index = index;
    fault->position = position;
}

MS_INLINE int64_t cell_size(const cell *each) {
    return each->length < 0 ? 1 : varint_size((uint64_t)each->length << 1) + each->length;
}

MS_INLINE uint8_t *write_cell(uint8_t *at, const cell *each) {
    at = write_varint(at, zigzag(each->length));
    if (each->length > 0) {
        __builtin_memcpy(at, each->data, (size_t)each->length);
        at += each->length;
    }
    return at;
}

/* Reads one header of a table; a null key is written as an empty one, for keys are never null. */
static int header_at(const ms_table *table, int64_t header, cell *key, cell *value) {
    if (!cell_at(&table->header_key, header, &key->data, &key->length)) return 0;
    if (!cell_at(&table->header_value, header, &value->data, &value->length)) return 0;
    if (key->length < 0) key->length = 0;
    return 1;
}

static int measure_headers(row_in *row) {
    cell key, value;
    row->headers_size = varint_size((uint64_t)row->header_count << 1);
    for (int64_t i = 0; i < row->header_count; i++) {
        if (!header_at(row->table, row->first_header + i, &key, &value)) return 0;
        row->headers_size += cell_size(&key) + cell_size(&value);
    }
    return 1;
}

static uint8_t *write_headers(uint8_t *at, const row_in *row) {
    cell key, value;
    at = write_varint(at, (uint64_t)row->header_count << 1);
    for (int64_t i = 0; i < row->header_count; i++) {
        if (!header_at(row->table, row->first_header + i, &key, &value)) break;
        at = write_cell(write_cell(at, &key), &value);
    }
    return at;
}

MS_INLINE int64_t in_milliseconds(int64_t timestamp, int64_t per_ms) {
    if (per_ms <= 1) return timestamp;
    int64_t whole = timestamp / per_ms;
    return whole - (timestamp % per_ms < 0);
}

/* Reads a row of a table; 0 when its columns do not fit. */
MS_INLINE int read_row(const ms_table *table, int64_t number, row_in *row) {
    int64_t time_row = number + table->timestamp_first;
    row->timestamp = table->timestamp && is_set(table->timestamp_validity, time_row)
                         ? in_milliseconds(table->timestamp[time_row], table->timestamp_per_ms)
                         : table->default_timestamp;
    if (MS_UNLIKELY(!cell_at(&table->key, number, &row->key.data, &row->key.length) ||
                    !cell_at(&table->value, number, &row->value.data, &row->value.length)))
        return 0;
    row->table = (const ms_table *)0;
    row->encoded_headers.length = -1;
    row->first_header = row->header_count = 0;
    row->headers_size = 1;
    if (MS_LIKELY(!table->header_offsets)) return 1;
    int64_t stop, at = number + table->header_first;
    if (!is_set(table->header_validity, at)) return 1;
    bounds_at(table->header_offsets, table->header_wide, at, &row->first_header, &stop);
    if (row->first_header < 0 || stop < row->first_header || stop > table->header_rows) return 0;
    row->header_count = stop - row->first_header;
    if (!row->header_count) return 1;
    row->table = table;
    return measure_headers(row);
}

/* A batch that is being written. */
typedef struct {
    uint8_t *start;
    uint8_t *at;
    int64_t count;
    int64_t base_timestamp;
    int64_t max_timestamp;
} open_batch;

static void open_at(open_batch *batch, uint8_t *start) {
    batch->start = start;
    batch->at = start + HEADER_SIZE;
    batch->count = 0;
    batch->base_timestamp = batch->max_timestamp = -1;
}

/* Bytes of a row as the next record of the batch, without its length; -1 when it is too large. */
MS_INLINE int64_t body_size(const open_batch *batch, const row_in *row) {
    int64_t base = batch->count ? batch->base_timestamp : row->timestamp;
    int64_t delta = subtract_wrapping(row->timestamp, base);
    int64_t size = 1 + varint_size(zigzag(delta)) + varint_size((uint64_t)batch->count << 1) +
                   cell_size(&row->key) + cell_size(&row->value) + row->headers_size;
    return size > MAX_BYTES ? -1 : size;
}

/* Adds a row, for which there is room. */
MS_INLINE void add(open_batch *batch, const row_in *row, int64_t size) {
    if (!batch->count) batch->base_timestamp = row->timestamp;
    /* It began at -1, below which it does not go (Kafka: MemoryRecordsBuilder). */
    if (row->timestamp > batch->max_timestamp) batch->max_timestamp = row->timestamp;
    uint8_t *at = write_varint(batch->at, (uint64_t)size << 1);
    *at++ = 0;
    at = write_varint(at, zigzag(subtract_wrapping(row->timestamp, batch->base_timestamp)));
    at = write_varint(at, (uint64_t)batch->count << 1);
    at = write_cell(at, &row->key);
    at = write_cell(at, &row->value);
    if (MS_UNLIKELY(row->table != (const ms_table *)0)) {
        at = write_headers(at, row);
    } else if (row->encoded_headers.length > 0) {
        __builtin_memcpy(at, row->encoded_headers.data, (size_t)row->encoded_headers.length);
        at += row->encoded_headers.length;
    } else {
        *at++ = 0;
    }
    batch->at = at;
    batch->count++;
}

static void set_crc(uint8_t *batch, int64_t size) {
    put_u32(batch + CRC_AT, ms_crc32c(0, batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT));
}

/* Base sequences follow one another and start again at 0 after the largest. */
static int32_t sequence_after(int32_t sequence, int64_t rows) {
    if (sequence < 0) return sequence;
    return (int32_t)(((int64_t)sequence + rows) & INT32_MAX);
}

/* Writes the header of a batch whose records stand. */
static void close_batch(const open_batch *batch, const ms_batch_options *options,
                        int32_t base_sequence, ms_written *written) {
    uint8_t *header = batch->start;
    int64_t size = batch->at - header;
    int64_t max_timestamp = options->attributes & LOG_APPEND_TIME ? options->log_append_time
                                                                  : batch->max_timestamp;
    put_u64(header, (uint64_t)options->base_offset);
    put_u32(header + 8, (uint32_t)(size - LENGTH_OVERHEAD));
    put_u32(header + 12, (uint32_t)options->leader_epoch);
    header[16] = 2;
    put_u32(header + CRC_AT, 0);
    put_u16(header + ATTRIBUTES_AT, (uint16_t)options->attributes);
    put_u32(header + 23, (uint32_t)(batch->count ? batch->count - 1 : 0));
    put_u64(header + 27, (uint64_t)batch->base_timestamp);
    put_u64(header + 35, (uint64_t)max_timestamp);
    put_u64(header + 43, (uint64_t)options->producer_id);
    put_u16(header + 51, (uint16_t)options->producer_epoch);
    put_u32(header + 53, (uint32_t)base_sequence);
    put_u32(header + 57, (uint32_t)batch->count);
    if (options->checksum) set_crc(header, size);
    if (written) {
        written->size = size;
        written->count = batch->count;
        written->base_timestamp = batch->base_timestamp;
        written->max_timestamp = max_timestamp;
    }
}

#define ROWS_AHEAD 16

/* Rows that lie apart are fetched before they are needed: the offsets first, then what they say. */
MS_INLINE void fetch_ahead(const ms_binary_in *column, const int64_t *order, int64_t each,
                           int64_t last, int64_t rows) {
    int64_t start, stop, far = each + 2 * ROWS_AHEAD, near = each + ROWS_AHEAD;
    if (!column->offsets || far >= last) return;
    far = order[far];
    near = order[near];
    if (far < 0 || far >= rows || near < 0 || near >= rows) return;
    __builtin_prefetch((const char *)column->offsets +
                       (far + column->first) * (column->wide ? 8 : 4));
    bounds_at(column->offsets, column->wide, near + column->first, &start, &stop);
    if (start < 0 || start >= column->data_size) return;
    __builtin_prefetch(column->data + start);
    __builtin_prefetch(column->data + start + 64);
}

int64_t ms_encode(const ms_table *table, const int64_t *order, int64_t first, int64_t last,
                  const ms_batch_options *options, uint8_t *out, int64_t out_size,
                  ms_written *written, int64_t written_capacity, int64_t *written_count,
                  ms_fault *fault) {
    uint8_t *end = out + out_size, *start = out;
    int32_t sequence = options->base_sequence;
    int64_t next = first;
    open_batch batch;
    row_in row;
    set_fault(fault, MS_OK, 0, 0);
    *written_count = 0;
    while (next < last && *written_count < written_capacity) {
        if (end - start < HEADER_SIZE) break;
        open_at(&batch, start);
        int64_t each = next, needed = 0;
        for (; each < last; each++) {
            int64_t number = order ? order[each] : each;
            if (order) {
                fetch_ahead(&table->value, order, each, last, table->rows);
                fetch_ahead(&table->key, order, each, last, table->rows);
            }
            if (MS_UNLIKELY(number < 0 || number >= table->rows ||
                            !read_row(table, number, &row))) {
                set_fault(fault, MS_COLUMN, number, 0);
                return -1;
            }
            int64_t size = body_size(&batch, &row);
            if (MS_UNLIKELY(size < 0)) {
                set_fault(fault, MS_RECORD, number, 0);
                return -1;
            }
            int64_t after = batch.at - start + varint_size((uint64_t)size << 1) + size;
            if (after > options->batch_bytes && batch.count) break;
            if (MS_UNLIKELY(after > end - start)) {
                needed = after > options->batch_bytes ? after : options->batch_bytes;
                break;
            }
            add(&batch, &row, size);
        }
        if (needed) {
            /* The batch goes into the next output as a whole, if it is not the first of this. */
            if (*written_count) break;
            set_fault(fault, MS_CAPACITY, next, needed);
            return -1;
        }
        ms_written *done = written + (*written_count)++;
        done->position = start - out;
        close_batch(&batch, options, sequence, done);
        sequence = sequence_after(sequence, batch.count);
        start = batch.at;
        next = each;
    }
    if (next == first && first < last) {
        set_fault(fault, MS_CAPACITY, first, options->batch_bytes);
        return -1;
    }
    return next;
}

/* Takes the next cell of a run; 0 when it does not fit. */
MS_INLINE int next_cell(const ms_run *run, int64_t row, int64_t *position, cell *out) {
    out->data = run->data;
    out->length = run->lengths && run->lengths[row] >= 0 ? run->lengths[row] : -1;
    if (out->length <= 0) return 1;
    if (MS_UNLIKELY(out->length > run->size - *position)) return 0;
    out->data = run->data + *position;
    *position += out->length;
    return 1;
}

int64_t ms_encode_rows(const int64_t *timestamps, const ms_run *runs, int64_t rows,
                       const ms_batch_options *options, uint8_t *out, int64_t out_size,
                       ms_fault *fault) {
    int64_t keys = 0, values = 0, headers = 0;
    open_batch batch;
    row_in row;
    set_fault(fault, MS_OK, 0, 0);
    if (out_size < HEADER_SIZE) {
        set_fault(fault, MS_CAPACITY, 0, HEADER_SIZE);
        return -1;
    }
    open_at(&batch, out);
    row.table = (const ms_table *)0;
    for (int64_t i = 0; i < rows; i++) {
        if (!next_cell(runs, i, &keys, &row.key) || !next_cell(runs + 1, i, &values, &row.value) ||
            !next_cell(runs + 2, i, &headers, &row.encoded_headers)) {
            set_fault(fault, MS_COLUMN, i, 0);
            return -1;
        }
        row.timestamp = timestamps[i];
        row.headers_size = row.encoded_headers.length > 0 ? row.encoded_headers.length : 1;
        int64_t size = body_size(&batch, &row);
        if (size < 0 || size + 5 > out_size - (batch.at - out)) {
            set_fault(fault, size < 0 ? MS_RECORD : MS_CAPACITY, i, 0);
            return -1;
        }
        add(&batch, &row, size);
    }
    close_batch(&batch, options, options->base_sequence, (ms_written *)0);
    return batch.at - out;
}
