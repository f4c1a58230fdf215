/* Columns that are written entry by entry, as Arrow lays them out, nested to any depth.
 *
 * The caller owns the memory. A writer that finds no room leaves the row, and the caller gives that
 * column more and goes on: a row that was begun is taken back by take_back, for the lengths of all
 * columns follow from the number of whole rows. Mirrored by millstream.records.out_columns. */
#ifndef MILLSTREAM_ARROW_OUT_H
#define MILLSTREAM_ARROW_OUT_H

#include "kernel.h"
#include "numbers.h"
#include "utf8.h"
#include "wide.h"

#include <string.h>

enum {
    MS_OUT_BITS = 0,
    MS_OUT_32 = 1,
    MS_OUT_64 = 2,
    MS_OUT_128 = 3,
    MS_OUT_BYTES = 4,
    MS_OUT_LIST = 5,   /* also a map; the column after it has its items */
    MS_OUT_STRUCT = 6, /* the columns after it are its fields */
};

#define MS_MOST_MAP_KEYS 256

/* Columns stand in one array, each before those that are inside of it. */
typedef struct {
    uint8_t *validity; /* NULL: no entry is null */
    void *values;      /* of bytes and lists: 32-bit offsets, one more than entries */
    uint8_t *data;
    int64_t capacity; /* entries */
    int64_t data_capacity;
    int64_t length;
    int64_t bytes;
    int32_t layout;
    int32_t parent; /* -1: a column of the table */
    int32_t end;    /* the first column after it that is not inside of it */
    int32_t unused;
} ms_out;

typedef struct {
    ms_out *columns;
    int64_t full; /* the column that has no room; -1: all have */
    int64_t need; /* bytes of data that it needs in all; 0: entries */
} out_table;

MS_INLINE void put_bit(uint8_t *bitmap, int64_t place, int bit) {
    uint8_t *at = bitmap + (place >> 3);
    int shift = (int)(place & 7);
    uint8_t kept = shift ? (uint8_t)(*at & ((1 << shift) - 1)) : 0;
    *at = (uint8_t)(kept | (bit ? 1 << shift : 0));
}

/* The column, ready for one more entry that is not null; NULL where it has no room. */
MS_INLINE ms_out *out_entry(out_table *table, int64_t column) {
    ms_out *out = table->columns + column;
    if (MS_UNLIKELY(out->length >= out->capacity)) {
        table->full = column;
        table->need = 0;
        return NULL;
    }
    if (out->validity) put_bit(out->validity, out->length, 1);
    return out;
}

MS_INLINE int out_bit(out_table *table, int64_t column, int bit) {
    ms_out *out = out_entry(table, column);
    if (!out) return 0;
    put_bit(out->values, out->length++, bit);
    return 1;
}

MS_INLINE int out_32(out_table *table, int64_t column, int32_t number) {
    ms_out *out = out_entry(table, column);
    if (!out) return 0;
    ((int32_t *)out->values)[out->length++] = number;
    return 1;
}

MS_INLINE int out_64(out_table *table, int64_t column, int64_t number) {
    ms_out *out = out_entry(table, column);
    if (!out) return 0;
    ((int64_t *)out->values)[out->length++] = number;
    return 1;
}

MS_INLINE int out_128(out_table *table, int64_t column, __int128 number) {
    ms_out *out = out_entry(table, column);
    if (!out) return 0;
    memcpy((uint8_t *)out->values + 16 * out->length++, &number, 16);
    return 1;
}

/* Room for the data of one more entry of bytes; NULL where there is none, with or without a column
 * that is full: without, no column holds so much. */
MS_INLINE uint8_t *out_data(out_table *table, int64_t column, int64_t size) {
    ms_out *out = out_entry(table, column);
    if (!out) return NULL;
    /* Whatever the room: the offsets are of 32 bits. */
    if (MS_UNLIKELY(INT32_MAX - out->bytes < size)) return NULL;
    if (MS_UNLIKELY(out->data_capacity - out->bytes < size)) {
        table->full = column;
        table->need = out->bytes + size;
        return NULL;
    }
    return out->data + out->bytes;
}

MS_INLINE void out_data_done(ms_out *out, int64_t size) {
    out->bytes += size;
    ((int32_t *)out->values)[++out->length] = (int32_t)out->bytes;
}

MS_INLINE int out_bytes(out_table *table, int64_t column, const uint8_t *data, int64_t size) {
    uint8_t *to = out_data(table, column, size);
    if (!to) return 0;
    memcpy(to, data, (size_t)size);
    out_data_done(table->columns + column, size);
    return 1;
}

/* 0 also for what is no UTF-8. */
MS_INLINE int out_text(out_table *table, int64_t column, const uint8_t *data, int64_t size) {
    uint8_t *to = out_data(table, column, size);
    if (!to || (!copy_ascii(to, data, size) && !is_utf8(data, data + size))) return 0;
    out_data_done(table->columns + column, size);
    return 1;
}

/* Closes a list whose items were written. */
MS_INLINE int out_list(out_table *table, int64_t column) {
    ms_out *out = out_entry(table, column);
    int64_t items = table->columns[column + 1].length;
    if (!out || items > INT32_MAX) return 0;
    ((int32_t *)out->values)[++out->length] = (int32_t)items;
    return 1;
}

MS_INLINE int out_struct(out_table *table, int64_t column) {
    ms_out *out = out_entry(table, column);
    if (!out) return 0;
    out->length++;
    return 1;
}

/* One null, of a struct with its fields. */
static int out_null(out_table *table, int64_t column) {
    ms_out *out = out_entry(table, column);
    if (!out || !out->validity) return 0;
    put_bit(out->validity, out->length, 0);
    switch (out->layout) {
    case MS_OUT_BITS:
        put_bit(out->values, out->length, 0);
        break;
    case MS_OUT_32:
        ((int32_t *)out->values)[out->length] = 0;
        break;
    case MS_OUT_64:
        ((int64_t *)out->values)[out->length] = 0;
        break;
    case MS_OUT_128:
        memset((uint8_t *)out->values + 16 * out->length, 0, 16);
        break;
    case MS_OUT_STRUCT:
        for (int64_t i = column + 1; i < out->end; i = table->columns[i].end)
            if (!out_null(table, i)) return 0;
        break;
    default:
        ((int32_t *)out->values)[out->length + 1] = ((int32_t *)out->values)[out->length];
    }
    out->length++;
    return 1;
}

/* Whether the key that was written last stands among the others of its map, which begin at first,
 * or they are too many to tell. */
static inline int is_key_twice(const ms_out *keys, int64_t first) {
    const int32_t *offsets = keys->values;
    const uint8_t *values = keys->values;
    int64_t last = keys->length - 1, size = keys->layout == MS_OUT_32 ? 4 : 8;
    if (last - first >= MS_MOST_MAP_KEYS) return 1;
    if (keys->layout == MS_OUT_128) size = 16;
    for (int64_t i = first; i < last; i++) {
        int is_same;
        if (keys->layout == MS_OUT_BITS)
            is_same = !((values[i >> 3] >> (i & 7) ^ values[last >> 3] >> (last & 7)) & 1);
        else if (keys->layout == MS_OUT_BYTES)
            is_same = offsets[i + 1] - offsets[i] == offsets[last + 1] - offsets[last] &&
                      !memcmp(keys->data + offsets[i], keys->data + offsets[last],
                              (size_t)(offsets[last + 1] - offsets[last]));
        else
            is_same = !memcmp(values + i * size, values + last * size, (size_t)size);
        if (is_same) return 1;
    }
    return 0;
}

/* Forgets all that stands behind so many rows. */
static void take_back(ms_out *columns, int64_t count, int64_t rows) {
    for (int64_t i = 0; i < count; i++) {
        ms_out *out = columns + i;
        const ms_out *parent = columns + out->parent;
        if (out->parent < 0)
            out->length = rows;
        else if (parent->layout == MS_OUT_LIST)
            out->length = ((const int32_t *)parent->values)[parent->length];
        else
            out->length = parent->length;
        if (out->layout == MS_OUT_BYTES) out->bytes = ((const int32_t *)out->values)[out->length];
    }
}

#endif
