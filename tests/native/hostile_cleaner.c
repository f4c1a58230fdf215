/* Batches whose checksums hold and whose records lie, for native/cleaner.c under the sanitizers.
 *
 *     hostile_cleaner SEED ROUNDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/cleaner.h"

static uint64_t state;

static uint32_t chance(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

static void put(uint8_t *at, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
}

/* One record of a short key and value; returns its size. */
static int64_t write_record(uint8_t *at, int delta) {
    int key = (int)chance(5), value = (int)chance(6) - 1, n = 0;
    uint8_t body[32];
    body[n++] = 0;
    body[n++] = (uint8_t)chance(100);
    body[n++] = (uint8_t)(delta << 1);
    body[n++] = (uint8_t)(key << 1);
    for (int i = 0; i < key; i++) body[n++] = (uint8_t)('a' + chance(3));
    body[n++] = (uint8_t)(value < 0 ? 1 : value << 1);
    for (int i = 0; i < value; i++) body[n++] = 'v';
    body[n++] = 0;
    at[0] = (uint8_t)(n << 1);
    memcpy(at + 1, body, (size_t)n);
    return n + 1;
}

/* A batch, perhaps spoilt inside; returns its size. */
static int64_t write_batch(uint8_t *at, int64_t base_offset) {
    int count = 1 + (int)chance(6);
    int64_t size = 61;
    for (int n = 0; n < count; n++) size += write_record(at + size, n);
    memset(at, 0, 61);
    put(at, (uint64_t)base_offset, 8);
    put(at + 8, (uint64_t)(size - 12), 4);
    at[16] = 2;
    put(at + 23, (uint64_t)(count - 1), 4);
    put(at + 57, (uint64_t)count, 4);
    for (uint32_t n = chance(3); n > 0; n--)
        at[61 + chance((uint32_t)size - 61)] = (uint8_t)chance(256);
    if (chance(8) == 0) put(at + 57, chance(2) ? chance(1000) : 0x7FFFFFFF, 4);
    if (chance(20) == 0) put(at + 35, 0x7FFFFFFFFFFFFFFFull, 8);
    if (chance(20) == 0) put(at + 27, 0x7FFFFFFFFFFFFFFFull, 8);
    put(at + 17, ms_crc32c(0, at + 21, size - 21), 4);
    if (chance(30) == 0) put(at + 8, chance(200), 4);
    return size;
}

static void round_trip(void) {
    uint8_t scratch[8192];
    int64_t size = 0, batches = 1 + chance(12), offset = 0;
    if (chance(10) == 0) offset = INT64_MAX - 80;
    for (int64_t n = 0; n < batches; n++, offset += 6) size += write_batch(scratch + size, offset);
    if (chance(3) == 0) size -= chance((uint32_t)size);
    uint8_t *data = malloc((size_t)size + !size), *out = malloc((size_t)size + !size);
    int64_t slots = 2 + chance(40);
    uint8_t *table = calloc((size_t)slots, 24);
    if (!data || !out || !table) abort();
    memcpy(data, scratch, (size_t)size);
    ms_offset_map map = {table, slots, 1 + chance((uint32_t)slots - 1), 0, -1, {state, ~state}};
    int64_t keep[3] = {-1, 5, 11};
    int32_t is_full = 0;
    for (int64_t position = 0; position < size;) {
        int64_t stopped = ms_map_put_batches(&map, data, size, position, chance(20), &is_full);
        if (stopped < position || stopped > size) abort();
        if (is_full) break;
        position = stopped + 1 + chance(80);
    }
    if (map.count > map.capacity) abort();
    for (int64_t position = 0; position < size;) {
        int64_t written = 0;
        uint8_t *room = malloc((size_t)(size - position));
        if (!room) abort();
        int64_t stopped = ms_map_filter_batches(&map, data, size, position, keep, chance(4), room,
                                                &written);
        if (stopped < position || stopped > size || written > stopped - position) abort();
        free(room);
        position = stopped + 1 + chance(80);
    }
    int64_t start = chance((uint32_t)size + 1);
    ms_retained retained;
    ms_map_put_records(&map, data + start, size - start, chance(50), offset, 0);
    ms_map_filter_records(&map, data + start, size - start, chance(50), offset, (int)chance(2), out,
                          &retained);
    if (!retained.is_corrupt && retained.size > size - start) abort();
    free(data);
    free(out);
    free(table);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    state = strtoull(arguments[1], NULL, 10);
    for (long rounds = strtol(arguments[2], NULL, 10); rounds > 0; rounds--) round_trip();
    return 0;
}
