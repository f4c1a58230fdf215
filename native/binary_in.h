/* Reads the cells of a column of byte strings that came from Arrow. */
#ifndef MILLSTREAM_BINARY_IN_H
#define MILLSTREAM_BINARY_IN_H

#include "kernel.h"
#include "numbers.h"

MS_INLINE int is_set(const uint8_t *bitmap, int64_t bit) {
    return !bitmap || (bitmap[bit >> 3] >> (bit & 7) & 1);
}

/* Bounds of entry row in the offsets of a binary or a list column. */
MS_INLINE void bounds_at(const void *offsets, int64_t wide, int64_t row, int64_t *start,
                         int64_t *stop) {
    if (wide) {
        *start = ((const int64_t *)offsets)[row];
        *stop = ((const int64_t *)offsets)[row + 1];
    } else {
        *start = ((const int32_t *)offsets)[row];
        *stop = ((const int32_t *)offsets)[row + 1];
    }
}

/* A cell, of length -1 when it is null; 0 when the offsets do not fit the data. */
MS_INLINE int cell_at(const ms_binary_in *column, int64_t row, const uint8_t **data,
                      int64_t *length) {
    int64_t start, stop;
    row += column->first;
    *length = -1;
    *data = column->data;
    if (!column->offsets || !is_set(column->validity, row)) return 1;
    bounds_at(column->offsets, column->wide, row, &start, &stop);
    if (MS_UNLIKELY(start < 0 || stop < start || stop > column->data_size ||
                    stop - start > INT32_MAX))
        return 0;
    *data = column->data + start;
    *length = stop - start;
    return 1;
}

#endif
