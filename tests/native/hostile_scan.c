/* Batches, sound and spoilt, for native/scan.c under the sanitizers, with little room for what it
 * finds.
 *
 *     hostile_scan SEED ROUNDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/scan.h"

static uint64_t state;

static uint32_t chance(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

static void put(uint8_t *at, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
}

static uint64_t extreme(void) {
    static const uint64_t numbers[] = {0, 1, UINT64_MAX, INT64_MAX, 1ull << 63, INT32_MAX,
                                       0x80000000ull};
    return numbers[chance(7)];
}

/* A batch, perhaps spoilt before or after its checksum; returns its size. */
static int64_t write_batch(uint8_t *at, uint64_t base_offset) {
    static const int fields[][2] = {{0, 8}, {8, 4}, {12, 4}, {16, 1}, {21, 2}, {23, 4},
                                    {27, 8}, {35, 8}, {43, 8}, {51, 2}, {57, 4}};
    int64_t size = 61 + chance(90);
    for (int64_t n = 0; n < size; n++) at[n] = (uint8_t)chance(256);
    put(at, base_offset, 8);
    put(at + 8, (uint64_t)(size - 12), 4);
    put(at + 12, chance(4), 4);
    at[16] = 2;
    put(at + 21, chance(64), 2);
    put(at + 23, chance(3), 4);
    put(at + 35, chance(1000), 8);
    put(at + 43, chance(3) ? chance(30) : UINT64_MAX, 8);
    put(at + 57, 1, 4);
    if (chance(12) == 0) {
        const int *field = fields[chance(11)];
        put(at + field[0], extreme(), field[1]);
    }
    put(at + 17, ms_crc32c(0, at + 21, size - 21), 4);
    if (chance(25) == 0) at[chance((uint32_t)size)] ^= (uint8_t)(1 + chance(255));
    return size;
}

static void *room(int64_t bytes) {
    void *found = malloc((size_t)bytes + !bytes);
    if (!found) abort();
    return found;
}

static int64_t accepted;

static void look(const ms_scan *scan, int64_t taken) {
    for (int64_t n = 0; n < scan->mark_count; n++)
        if (scan->marks[n] < 0 || scan->marks[n] > taken - 61) abort();
    for (int64_t n = 0; n < scan->producer_count; n++) {
        const ms_producer_batches *row = scan->producers + n;
        int64_t kept = row->batches < MS_BATCHES_KEPT ? row->batches : MS_BATCHES_KEPT;
        if (kept < 1) abort();
        for (int64_t i = 0; i < kept; i++)
            if (row->places[i] < 0 || row->places[i] > taken - 61) abort();
        for (int64_t other = 0; other < n; other++)
            if (scan->producers[other].producer_id == row->producer_id) abort();
    }
}

static void scan_log(void) {
    static uint8_t scratch[64 * 160];
    int64_t size = 0, batches = chance(60);
    uint64_t offset = chance(20) ? chance(5) : INT64_MAX - chance(100);
    for (int64_t n = 0; n < batches; n++, offset += 3) size += write_batch(scratch + size, offset);
    if (size && chance(3) == 0) size -= chance((uint32_t)size);
    uint8_t *data = room(size);
    memcpy(data, scratch, (size_t)size);
    int64_t capacity = 1 + chance(20), slot_bits = 1;
    while (INT64_C(1) << slot_bits <= capacity) slot_bits++;
    ms_scan scan = {0};
    scan.largest_timestamp = scan.latest_epoch = -1;
    scan.max_offset = chance(3) ? INT64_MAX : chance(200);
    scan.interval_bytes = chance(2000);
    scan.producers_from = chance(30);
    scan.capacity = capacity;
    scan.slot_bits = slot_bits;
    scan.entries = room(capacity * (int64_t)sizeof *scan.entries);
    scan.epochs = room(capacity * (int64_t)sizeof *scan.epochs);
    scan.marks = room(capacity * (int64_t)sizeof *scan.marks);
    scan.producers = room(capacity * (int64_t)sizeof *scan.producers);
    scan.slots = room((int64_t)sizeof *scan.slots << slot_bits);
    int64_t done = 0;
    do {
        int64_t taken = ms_scan_batches(&scan, data + done, size - done, done);
        if (taken < 0 || taken > size - done || (scan.is_full && !taken)) abort();
        look(&scan, taken);
        done += taken;
        accepted += taken;
    } while (scan.is_full);
    free(data);
    free(scan.entries);
    free(scan.epochs);
    free(scan.marks);
    free(scan.producers);
    free(scan.slots);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    state = strtoull(arguments[1], NULL, 10);
    for (long rounds = strtol(arguments[2], NULL, 10); rounds > 0; rounds--) scan_log();
    return accepted ? 0 : 3;
}
