/* Finds a name among sorted ones: short names stand first, then by bytes. */
#ifndef MILLSTREAM_SORTED_NAMES_H
#define MILLSTREAM_SORTED_NAMES_H

#include "numbers.h"

#include <string.h>

typedef struct {
    const uint8_t *at;
    int64_t size;
} name_text;

/* The name of a column, of whatever holds them. */
typedef name_text name_of(const void *owner, int64_t column);

/* Below 0 where one stands before other, above 0 behind. */
MS_INLINE int compare_names(name_text one, name_text other) {
    if (one.size != other.size) return one.size < other.size ? -1 : 1;
    return memcmp(one.at, other.at, (size_t)one.size);
}

/* The column of this name, of those that sorted has; -1: there is none. compared grows with each
 * look at a name. */
MS_INLINE int64_t find_name(const int32_t *sorted, int64_t count, name_of *of, const void *owner,
                            name_text name, int64_t *compared) {
    int64_t low = 0, high = count - 1;
    while (low <= high) {
        int64_t middle = (low + high) / 2, column = sorted[middle];
        int found = compare_names(name, of(owner, column));
        ++*compared;
        if (!found) return column;
        if (found < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return -1;
}

#endif
