/* Which partition a key belongs to, as Kafka's Java producers choose it
 * (org.apache.kafka.common.utils.Utils.murmur2, BuiltInPartitioner.partitionForKey). */
#include "kernel.h"
#include "numbers.h"
#include "binary_in.h"

#define MULTIPLIER 0x5BD1E995u
#define SEED 0x9747B28Cu

MS_INLINE uint32_t hash_of(const uint8_t *data, int64_t size) {
    uint32_t state = SEED ^ (uint32_t)size;
    for (; size >= 4; size -= 4, data += 4) {
        uint32_t word;
        __builtin_memcpy(&word, data, 4);
        word *= MULTIPLIER;
        word = (word ^ word >> 24) * MULTIPLIER;
        state = state * MULTIPLIER ^ word;
    }
    if (size > 0) {
        uint32_t rest = data[0];
        if (size > 1) rest |= (uint32_t)data[1] << 8;
        if (size > 2) rest |= (uint32_t)data[2] << 16;
        state = (state ^ rest) * MULTIPLIER;
    }
    state = (state ^ state >> 13) * MULTIPLIER;
    return state ^ state >> 15;
}

uint32_t ms_murmur2(const uint8_t *data, int64_t size) { return hash_of(data, size); }

void ms_partition(const ms_binary_in *key, int64_t rows, int32_t partitions, int64_t sticky_rows,
                  int32_t sticky_partition, int32_t *out, ms_fault *fault) {
    int64_t left = sticky_rows;
    fault->code = MS_OK;
    fault->index = fault->position = 0;
    if (partitions <= 0 || sticky_partition < 0 || sticky_partition >= partitions) {
        fault->code = MS_PARTITION;
        return;
    }
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *data;
        int64_t length;
        if (MS_UNLIKELY(!cell_at(key, row, &data, &length))) {
            fault->code = MS_COLUMN;
            fault->index = row;
            return;
        }
        if (length >= 0) {
            out[row] = (int32_t)((hash_of(data, length) & 0x7FFFFFFF) % (uint32_t)partitions);
            continue;
        }
        if (left <= 0) {
            left = sticky_rows;
            sticky_partition = sticky_partition + 1 == partitions ? 0 : sticky_partition + 1;
        }
        left--;
        out[row] = sticky_partition;
    }
}

void ms_group(const int32_t *partition, int64_t rows, int32_t partitions, int64_t *order,
              int64_t *bounds, ms_fault *fault) {
    fault->code = MS_OK;
    fault->index = fault->position = 0;
    for (int32_t p = 0; p <= partitions; p++) bounds[p] = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (MS_UNLIKELY(partition[row] < 0 || partition[row] >= partitions)) {
            fault->code = MS_PARTITION;
            fault->index = row;
            return;
        }
        bounds[partition[row] + 1]++;
    }
    for (int32_t p = 0; p < partitions; p++) bounds[p + 1] += bounds[p];
    /* While rows are placed, bounds[p] is where the next row of p goes; at the end it is where the
     * rows of p + 1 start. */
    for (int64_t row = 0; row < rows; row++) order[bounds[partition[row]]++] = row;
    for (int32_t p = partitions; p > 0; p--) bounds[p] = bounds[p - 1];
    bounds[0] = 0;
}
