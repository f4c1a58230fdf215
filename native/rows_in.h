/* Reads the values of a column row by row into columns. */
#ifndef MILLSTREAM_ROWS_IN_H
#define MILLSTREAM_ROWS_IN_H

#include "arrow_out.h"
#include "binary_in.h"

/* Writes one value, of length -1 when it is null, behind so many written rows; 0 where it is not
 * taken, or a column is full. */
typedef int row_reader(void *reader, const uint8_t *data, int64_t length, int64_t written);

/* Reads from row first on, until all rows are read, a column is full, or the offsets do not fit the
 * data; fault says which. Returns the row that it has come to. */
MS_INLINE int64_t read_rows(row_reader *read, void *reader, out_table *table, int64_t count,
                            const ms_binary_in *values, int64_t first, int64_t rows,
                            int64_t *written, uint8_t *states, ms_fault *fault) {
    fault->code = MS_OK;
    for (; first < rows; first++) {
        const uint8_t *data;
        int64_t length;
        if (MS_UNLIKELY(!cell_at(values, first, &data, &length))) {
            fault->code = MS_COLUMN;
            fault->index = first;
            break;
        }
        states[first] = 1;
        if (MS_LIKELY(read(reader, data, length, *written))) {
            states[first] = 0;
            ++*written;
            continue;
        }
        take_back(table->columns, count, *written);
        if (table->full >= 0) {
            fault->code = MS_CAPACITY;
            fault->index = table->full;
            fault->position = table->need;
            break;
        }
    }
    return first;
}

#endif
