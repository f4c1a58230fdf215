/* Produced batches, sound and spoilt, for native/produce.c under the sanitizers.
 *
 *     hostile_produce SEED ROUNDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/produce.h"

static uint64_t state;

static uint32_t chance(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

static void put(uint8_t *at, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
}

static int64_t extreme(void) {
    static const int64_t numbers[] = {0, 1, -1, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN};
    return numbers[chance(7)];
}

static uint8_t *varint(uint8_t *at, int64_t number) {
    uint64_t rest = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; rest > 0x7F; rest >>= 7) *at++ = (uint8_t)(rest | 0x80);
    *at++ = (uint8_t)rest;
    return at;
}

static uint8_t *field(uint8_t *at) {
    int64_t length = chance(30) ? (int64_t)chance(20) - 1 : extreme();
    at = varint(at, length);
    for (int64_t i = 0; i < length && i < 20; i++) *at++ = (uint8_t)chance(256);
    return at;
}

/* A record, now and then with a length, a number or a header that lies; returns its end. */
static uint8_t *write_record(uint8_t *at, int64_t index) {
    uint8_t body[400], *to = body;
    *to++ = 0;
    to = varint(to, chance(20) ? chance(50) : extreme());
    to = varint(to, chance(30) ? index : extreme());
    to = field(field(to));
    int64_t headers = chance(4) ? 0 : chance(4);
    to = varint(to, chance(30) ? headers : extreme());
    for (int64_t i = 0; i < headers; i++) to = field(field(to));
    at = varint(at, chance(30) ? to - body : chance(2) ? to - body - 1 : extreme());
    memcpy(at, body, (size_t)(to - body));
    return at + (to - body);
}

static int get_buffer(void *object, void *view, int flags) {
    (void)flags;
    memcpy(view, object, 3 * sizeof(void *));
    return 0;
}

static int64_t held;

static void release_buffer(void *view) {
    (void)view;
    held--;
}

static int64_t plain;

static void check_one(void) {
    static uint8_t scratch[20 * 500 + 61];
    int64_t count = 1 + chance(15), size;
    uint8_t *end = scratch + 61;
    for (int64_t i = 0; i < count; i++) end = write_record(end, i);
    size = end - scratch;
    memset(scratch, 0, 61);
    if (chance(6) == 0) size = chance((uint32_t)size);
    if (size >= 61) {
        put(scratch + 8, (uint64_t)(chance(30) ? size - 12 : extreme()), 4);
        scratch[16] = 2;
        put(scratch + 21, chance(6) ? 0 : chance(64), 2);
        put(scratch + 23, (uint64_t)(chance(30) ? count - 1 : extreme()), 4);
        put(scratch + 27, (uint64_t)(chance(4) ? 1000 : extreme()), 8);
        put(scratch + 43, (uint64_t)(chance(4) ? -1 : extreme()), 8);
        put(scratch + 53, (uint64_t)(chance(4) ? 0 : extreme()), 4);
        put(scratch + 57, (uint64_t)(chance(20) ? count : extreme()), 4);
        if (chance(8) == 0) scratch[21 + chance((uint32_t)size - 21)] ^= (uint8_t)(1 + chance(255));
        put(scratch + 17, ms_crc32c(0, scratch + 21, size - 21) + !chance(20), 4);
    }
    uint8_t *data = malloc((size_t)size + !size);
    if (!data) abort();
    memcpy(data, scratch, (size_t)size);
    int64_t most = chance(3) ? INT64_MAX : chance(2000);
    ms_produce_rules rules = {most, chance(2) ? INT64_MAX : 3600, chance(2), chance(3) == 0, 0, 0, -1};
    int64_t now = chance(4) ? 1000 : extreme();
    int64_t largest = ms_check_batch(&rules, data, size, now);
    if (largest < MS_NOT_PLAIN) abort();
    void *object[3] = {data, NULL, (void *)(intptr_t)size};
    ms_buffers python = {get_buffer, release_buffer};
    held = 1;
    if (ms_check_produced(&rules, &python, object, now) != largest || held) abort();
    ms_produced found;
    int64_t from = size > 61 ? 61 + chance((uint32_t)(size - 60)) : 0;
    int64_t told = chance(4) ? count : extreme();
    ms_check_records(&rules, data + from, size - from, chance(3), told, extreme(), now, &found);
    if (found.fault.position < 0 || found.fault.position > size - from) abort();
    if (found.largest_timestamp < -1) abort();
    plain += largest != MS_NOT_PLAIN;
    free(data);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    state = strtoull(arguments[1], NULL, 10);
    long rounds = strtol(arguments[2], NULL, 10);
    for (long i = 0; i < rounds; i++) check_one();
    return plain > rounds / 100 ? 0 : 3;
}
