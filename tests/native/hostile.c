/* Gives the kernel random and hostile input, in memory that the sanitizers watch byte by byte.
 *
 * Usage: hostile SEED ROUNDS. Every buffer is allocated with exactly the size that the kernel is
 * told, so a read or a write past it ends the program. Prints how often each fault was told. */
#include "../../native/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : state;
}

static void *room(int64_t bytes) {
    /* Sizes that a hostile batch made up must never get here. */
    if (bytes < 0 || bytes > 1 << 26) {
        fprintf(stderr, "asked for %lld bytes\n", (long long)bytes);
        exit(2);
    }
    void *at = malloc((size_t)bytes + !bytes);
    if (!at) exit(2);
    memset(at, 0xA5, (size_t)bytes);
    return at;
}

static int64_t told[16];
static int64_t decoded;

#include "fake_python.h"

/* A column of byte strings with offsets that end exactly where the data ends. */
typedef struct {
    ms_binary_in in;
    void *offsets;
    uint8_t *data;
    uint8_t *validity;
} column;

static column some_column(int64_t rows, int hostile) {
    column made;
    int64_t wide = (int64_t)draw(2), first = (int64_t)draw(3), total = rows + first, size = 0;
    int64_t *bounds = room(8 * (total + 1));
    for (int64_t i = 0; i <= total; i++) {
        bounds[i] = size;
        if (i < total) size += draw(8) ? (int64_t)draw(20) : (int64_t)draw(300);
    }
    made.data = room(size);
    for (int64_t i = 0; i < size; i++) made.data[i] = (uint8_t)draw(256);
    if (hostile)
        for (int i = 0; i < 3; i++) bounds[draw((uint64_t)total + 1)] = (int64_t)draw(0) >> draw(64);
    if (wide) {
        made.offsets = bounds;
    } else {
        int32_t *narrow = room(4 * (total + 1));
        for (int64_t i = 0; i <= total; i++) narrow[i] = (int32_t)bounds[i];
        free(bounds);
        made.offsets = narrow;
    }
    made.validity = draw(2) ? room((total + 7) / 8) : NULL;
    for (int64_t i = 0; made.validity && i < (total + 7) / 8; i++)
        made.validity[i] = (uint8_t)draw(256);
    made.in = (ms_binary_in){draw(8) ? made.offsets : NULL, made.data, made.validity, size, first,
                             wide};
    return made;
}

static void drop(column *each) {
    free(each->offsets);
    free(each->data);
    free(each->validity);
}

static void decode(const ms_batch *batches, int64_t count, int64_t start, int64_t end,
                   const ms_sizes *sizes) {
    ms_fault fault;
    ms_columns out;
    memset(&out, 0, sizeof out);
    int64_t rows = sizes->rows, heads = sizes->headers, bits = (rows + 7) / 8;
    void *kept[20];
    int n = 0;
#define ROOM(bytes) (kept[n++] = room(bytes))
    out.rows = rows;
    out.timestamp_factor = 1000;
    if (draw(2)) out.offset = ROOM(8 * rows);
    if (draw(2)) out.timestamp = ROOM(8 * rows);
    if (draw(2)) out.timestamp_type = ROOM(4 * rows);
    if (draw(2))
        out.key = (ms_binary_out){ROOM(4 * (rows + 1)), ROOM(sizes->key_bytes), ROOM(bits),
                                  sizes->key_bytes, 0};
    if (draw(2))
        out.value = (ms_binary_out){ROOM(4 * (rows + 1)), ROOM(sizes->value_bytes), ROOM(bits),
                                    sizes->value_bytes, 0};
    if (draw(2)) {
        out.header_offsets = ROOM(4 * (rows + 1));
        out.header_validity = ROOM(bits);
        out.header_capacity = heads;
        out.header_key = (ms_binary_out){ROOM(4 * (heads + 1)), ROOM(sizes->header_key_bytes),
                                         ROOM((heads + 7) / 8), sizes->header_key_bytes, 0};
        out.header_value = (ms_binary_out){ROOM(4 * (heads + 1)), ROOM(sizes->header_value_bytes),
                                           ROOM((heads + 7) / 8), sizes->header_value_bytes, 0};
    }
#undef ROOM
    ms_decode(batches, count, start, end, &out, &fault);
    told[fault.code]++;
    if (fault.code == MS_OK) decoded += out.rows;
    while (n) free(kept[--n]);
}

static void locate(const ms_batch *batches, int64_t count, const uint8_t *arena, int64_t rows,
                   int64_t heads) {
    ms_fault fault;
    int64_t *cells[11];
    for (int i = 0; i < 11; i++) cells[i] = room(8 * (i < 7 ? rows : heads));
    ms_cells out = {cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6],
                    cells[7], cells[8], cells[9], cells[10], rows, heads};
    ms_locate(batches, count, arena, &out, &fault);
    told[fault.code]++;
    for (int i = 0; i < 11; i++) free(cells[i]);
}

/* Takes ownership of log. */
static void read_log(uint8_t *log, int64_t size) {
    ms_walk walk;
    ms_fault fault;
    int64_t start = draw(4) ? INT64_MIN : (int64_t)draw(200);
    int64_t end = draw(4) ? INT64_MAX : (int64_t)draw(300);
    ms_find_batches(log, size, 0, start, end, 0, NULL, 0, &walk, &fault);
    told[fault.code]++;
    int64_t capacity = draw(8) ? walk.found : (int64_t)draw(4);
    ms_batch *found = room((int64_t)sizeof(ms_batch) * capacity);
    ms_find_batches(log, size, 0, start, end, (int32_t)draw(2), found, capacity, &walk, &fault);
    told[fault.code]++;
    int64_t count = walk.found < capacity ? walk.found : capacity;
    ms_sizes sizes;
    ms_bound(found, count, &sizes, &fault);
    told[fault.code]++;
    if (fault.code == MS_OK) decode(found, count, start, end, &sizes);
    ms_measure(found, count, start, end, &sizes, &fault);
    told[fault.code]++;
    if (fault.code == MS_OK) {
        int64_t rows = 0;
        for (int64_t i = 0; i < count; i++) rows += found[i].count;
        locate(found, count, log, draw(8) ? rows : (int64_t)draw(9),
               draw(8) ? sizes.headers : (int64_t)draw(3));
        objects(found, count, start, draw(8) ? rows : (int64_t)draw(9));
        /* Sizes that are too small, and bytes that change between the two passes. */
        if (!draw(4)) {
            int64_t *fields[] = {&sizes.rows, &sizes.key_bytes, &sizes.value_bytes,
                                 &sizes.headers, &sizes.header_key_bytes,
                                 &sizes.header_value_bytes};
            int64_t *field = fields[draw(6)];
            *field = (int64_t)draw((uint64_t)*field + 1);
        }
        if (!draw(4) && size > 61) log[61 + draw((uint64_t)size - 61)] = (uint8_t)draw(256);
        decode(found, count, start, end, &sizes);
        objects(found, count, start, rows);
    }
    free(found);
    free(log);
}

static void spoil(uint8_t *log, int64_t size) {
    static const uint8_t extremes[] = {0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF};
    for (uint64_t i = draw(4); i; i--) {
        uint8_t *at = log + draw((uint64_t)size);
        *at = draw(2) ? extremes[draw(sizeof extremes)] : (uint8_t)draw(256);
    }
}

/* Writes batches from columns and reads them back, spoiled and cut. */
static void encode_and_read(void) {
    int64_t rows = (int64_t)draw(40), heads = (int64_t)draw(30);
    int hostile = !draw(6);
    column key = some_column(rows, hostile && draw(2)), value = some_column(rows, hostile);
    column name = some_column(heads, hostile && draw(2)), content = some_column(heads, 0);
    int64_t *times = room(8 * rows), *order = room(8 * rows);
    int32_t *lists = room(4 * (rows + 1));
    for (int64_t i = 0; i < rows; i++) {
        times[i] = draw(9) ? 1700000000000 + (int64_t)draw(100000) : (int64_t)draw(0);
        order[i] = draw(200) ? (int64_t)draw((uint64_t)rows) : (int64_t)draw(0);
    }
    for (int64_t i = 0, at = 0; i <= rows; i++) {
        lists[i] = hostile && !draw(9) ? (int32_t)draw(0) : (int32_t)at;
        if (!draw(3) && at < heads) at++;
    }
    ms_table table = {rows, times, NULL, 0, 1 + (int64_t)draw(2) * 999, 7, key.in, value.in,
                      draw(2) ? lists : NULL, NULL, 0, 0, heads, name.in, content.in};
    ms_batch_options options = {(int64_t)draw(100), -1, 5, draw(5) ? 0 : 8, 3, -1,
                                (int32_t)draw(0), 61 + (int32_t)draw(2000), (int32_t)draw(2)};
    int64_t capacity = (int64_t)draw(30000), most = 1 + (int64_t)draw(20), done = 0;
    uint8_t *out = room(capacity);
    ms_written *written = room((int64_t)sizeof(ms_written) * most);
    ms_fault fault;
    int64_t reached = ms_encode(&table, draw(2) ? order : NULL, 0, rows, &options, out, capacity,
                                written, most, &done, &fault);
    told[fault.code]++;
    if (reached >= 0 && done) {
        int64_t size = written[done - 1].position + written[done - 1].size;
        int64_t kept = draw(4) ? size : (int64_t)draw((uint64_t)size + 1);
        uint8_t *log = room(kept);
        memcpy(log, out, (size_t)kept);
        if (kept && draw(3)) spoil(log, kept);
        read_log(log, kept);
    }
    free(out);
    free(written);
    free(times);
    free(order);
    free(lists);
    drop(&key);
    drop(&value);
    drop(&name);
    drop(&content);
}

static void noise(void) {
    int64_t size = (int64_t)draw(400);
    uint8_t *log = room(size);
    for (int64_t i = 0; i < size; i++) log[i] = draw(3) ? (uint8_t)draw(256) : (uint8_t)draw(3);
    if (size > 61 && draw(4)) {
        /* A header that holds, so that the records are looked at. */
        static const uint8_t sound[] = {0, 0, 0, 0, 0, 0, 0, 9};
        memcpy(log, sound, 8);
        log[8] = log[9] = 0;
        log[10] = (uint8_t)((size - 12) >> 8);
        log[11] = (uint8_t)(size - 12);
        log[16] = 2;
        log[22] &= 8;
        log[23] = log[57] = log[58] = log[59] = 0;
        log[60] = (uint8_t)draw(60);
    }
    read_log(log, size);
}

static void rows_one_by_one(void) {
    int64_t rows = (int64_t)draw(20), capacity = (int64_t)draw(6000), hostile = !draw(4);
    int64_t *times = room(8 * rows);
    int32_t *lengths[3];
    uint8_t *data[3];
    ms_run runs[3];
    for (int i = 0; i < 3; i++) {
        int64_t size = 0;
        lengths[i] = room(4 * rows);
        for (int64_t row = 0; row < rows; row++) {
            lengths[i][row] = (int32_t)draw(60) - 1;
            if (lengths[i][row] > 0) size += lengths[i][row];
            if (hostile && !draw(20)) lengths[i][row] = (int32_t)draw(0);
        }
        data[i] = room(size);
        runs[i] = (ms_run){draw(4) ? lengths[i] : NULL, data[i], size};
    }
    for (int64_t row = 0; row < rows; row++) times[row] = (int64_t)draw(0);
    ms_batch_options options = {0, -1, 5, 0, 3, -1, 0, 0, 1};
    ms_fault fault;
    uint8_t *out = room(capacity);
    ms_encode_rows(times, runs, rows, &options, out, capacity, &fault);
    told[fault.code]++;
    free(out);
    free(times);
    for (int i = 0; i < 3; i++) {
        free(lengths[i]);
        free(data[i]);
    }
}

static void partitions(void) {
    int64_t rows = (int64_t)draw(60);
    int32_t count = draw(9) ? 1 + (int32_t)draw(9) : (int32_t)draw(0);
    column key = some_column(rows, !draw(4));
    int32_t *chosen = room(4 * rows);
    ms_fault fault;
    ms_partition(&key.in, rows, count, (int64_t)draw(4), (int32_t)draw(12), chosen, &fault);
    told[fault.code]++;
    if (count > 0 && count < 100) {
        int64_t *order = room(8 * rows), *bounds = room(8 * ((int64_t)count + 1));
        ms_group(chosen, rows, count, order, bounds, &fault);
        told[fault.code]++;
        free(order);
        free(bounds);
    }
    free(chosen);
    drop(&key);
}

/* Values made of the tokens of JSON, cut and joined at random. */
static void json_values(void) {
    static const char *tokens[] = {"{", "}", "[", "]", "\"", "\\", "\"ab\":", ",", "1", "-0.5e", "true",
                                   "null", "\\ud83d\\ude00", "\xc3\xa9", "\xff", " ", "\n", "0", "{}"};
    int64_t rows = (int64_t)draw(40), capacity = 0;
    column values = some_column(rows, !draw(4));
    int64_t size = values.in.data_size;
    for (int64_t at = 0; at < size && draw(8);) {
        const char *token = tokens[draw(sizeof tokens / sizeof *tokens)];
        int64_t length = (int64_t)strlen(token);
        if (at + length > size) break;
        memcpy(values.data + at, token, (size_t)length);
        at += length;
    }
    capacity = draw(4) ? size * 2 + 3 * rows : (int64_t)draw(60);
    uint8_t names[] = {'a', 'b'}, kinds[] = {MS_JSON_TEXT};
    int32_t offsets[] = {0, 2}, sorted[] = {0};
    ms_json_columns columns = {names, offsets, kinds, sorted, (int64_t)draw(2)};
    uint8_t *out = room(capacity), *states = room(rows);
    int64_t *starts = room(8 * (rows + 1));
    ms_fault fault;
    int64_t written = ms_json_lines(&values.in, rows, &columns, (int64_t)draw(70), out, capacity,
                                    starts, states, &fault);
    told[fault.code]++;
    for (int64_t row = 0; written >= 0 && row < rows; row++) {
        const uint8_t *stop = out + starts[row + 1];
        if (starts[row + 1] > starts[row] && (states[row] || stop[-1] != '\n')) exit(4);
    }
    capacity = draw(4) ? size * 2 : (int64_t)draw(60);
    uint8_t *texts = room(capacity), *present = room(rows);
    int32_t *bounds = room(4 * (rows + 1));
    columns.count = 1;
    if (ms_json_fields(&values.in, rows, &columns, texts, capacity, bounds, present, states,
                       &fault) >= 0)
        for (int64_t row = 0; row < rows; row++)
            if (bounds[row + 1] < bounds[row] || (!present[row] && bounds[row + 1] > bounds[row]))
                exit(4);
    told[fault.code]++;
    free(texts);
    free(present);
    free(bounds);
    free(out);
    free(states);
    free(starts);
    drop(&values);
}

int main(int argc, char **argv) {
    if (argc != 3) return 1;
    state = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
    for (long left = atol(argv[2]); left > 0; left--) {
        encode_and_read();
        noise();
        rows_one_by_one();
        partitions();
        json_values();
    }
    printf("%lld records decoded; faults:", (long long)decoded);
    for (int i = 0; i < 12; i++) printf(" %lld", (long long)told[i]);
    printf("\n");
    return decoded ? 0 : 3;
}
