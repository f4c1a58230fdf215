/* The cleaner's map of keys, and compaction of many batches at once. See cleaner.h. */
#include "cleaner.h"
#include "numbers.h"

#define HEADER_SIZE 61
#define LENGTH_OVERHEAD 12
#define LOG_APPEND_TIME 0x08
#define NOT_PLAIN 0x77 /* codec, transactional, control, delete horizon */

#define SLOT 24
#define DIGEST 16
#define WINDOWS 13 /* slots that a digest names by itself */

int32_t ms_cleaner_abi(void) { return MS_CLEANER_ABI; }

/* SipHash-2-4, 128 bits (Aumasson, Bernstein). */

MS_INLINE uint64_t rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

MS_INLINE uint64_t load_u64(const uint8_t *at) {
    uint64_t word;
    __builtin_memcpy(&word, at, 8);
    return word;
}

MS_INLINE void sip_rounds(uint64_t v[4], int rounds) {
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

MS_INLINE void digest_of(const ms_offset_map *map, const uint8_t *key, int64_t size,
                         uint64_t digest[2]) {
    uint64_t v[4] = {0x736f6d6570736575ull ^ map->seed[0],
                     0x646f72616e646f6dull ^ map->seed[1] ^ 0xee,
                     0x6c7967656e657261ull ^ map->seed[0],
                     0x7465646279746573ull ^ map->seed[1]};
    uint64_t last = (uint64_t)size << 56;
    for (; size >= 8; size -= 8, key += 8) {
        uint64_t word = load_u64(key);
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    for (int64_t i = 0; i < size; i++) last |= (uint64_t)key[i] << (8 * i);
    v[3] ^= last;
    sip_rounds(v, 2);
    v[0] ^= last;
    v[2] ^= 0xee;
    sip_rounds(v, 4);
    digest[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    sip_rounds(v, 4);
    digest[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

void ms_map_digest(const ms_offset_map *map, const uint8_t *key, int64_t size, uint8_t *digest) {
    uint64_t words[2];
    digest_of(map, key, size, words);
    __builtin_memcpy(digest, words, DIGEST);
}

/* The slot that holds the digest, or the free one that it would get. One is always free. */
MS_INLINE uint8_t *find_slot(const ms_offset_map *map, const uint64_t digest[2]) {
    const uint8_t *bytes = (const uint8_t *)digest;
    uint64_t number = 0;
    for (int attempt = 0;; attempt++) {
        if (attempt < WINDOWS) {
            uint32_t window;
            __builtin_memcpy(&window, bytes + attempt, 4);
            number = window % (uint64_t)map->slots;
        } else if (++number == (uint64_t)map->slots) {
            number = 0;
        }
        uint8_t *slot = map->table + number * SLOT;
        uint64_t low = load_u64(slot), high = load_u64(slot + 8);
        if (low == digest[0] && high == digest[1]) return slot;
        if (load_u64(slot + DIGEST) == 0) return slot;
    }
}

MS_INLINE int put_key(ms_offset_map *map, const uint8_t *key, int64_t size, int64_t offset) {
    if (map->count >= map->capacity) return 0;
    uint64_t digest[2];
    digest_of(map, key, size, digest);
    uint8_t *slot = find_slot(map, digest);
    if (load_u64(slot + DIGEST) == 0) {
        __builtin_memcpy(slot, digest, DIGEST);
        map->count++;
    }
    int64_t stored = add_wrapping(offset, 1);
    __builtin_memcpy(slot + DIGEST, &stored, 8);
    return 1;
}

MS_INLINE int64_t offset_of(const ms_offset_map *map, const uint8_t *key, int64_t size) {
    uint64_t digest[2];
    digest_of(map, key, size, digest);
    return subtract_wrapping((int64_t)load_u64(find_slot(map, digest) + DIGEST), 1);
}

int32_t ms_map_put(ms_offset_map *map, const uint8_t *key, int64_t size, int64_t offset) {
    return put_key(map, key, size, offset);
}

int64_t ms_map_get(const ms_offset_map *map, const uint8_t *key, int64_t size) {
    return offset_of(map, key, size);
}

/* What compaction asks of a record. */
typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length;
    int32_t value_length;
    const uint8_t *key;
    const uint8_t *end;
} span;

/* Reads a record; 0 where there is none. Headers are passed over, not looked into. */
MS_INLINE int read_span(const uint8_t *at, const uint8_t *end, span *record) {
    int32_t length;
    at = read_i32(at, end, &length);
    if (!at || length <= 0 || length > end - at) return 0;
    end = at + length;
    at = read_i64(at + 1, end, &record->timestamp_delta);
    if (!at) return 0;
    at = read_i32(at, end, &record->offset_delta);
    if (!at) return 0;
    at = read_i32(at, end, &record->key_length);
    if (!at) return 0;
    record->key = at;
    if (record->key_length > 0) {
        if (record->key_length > end - at) return 0;
        at += record->key_length;
    }
    at = read_i32(at, end, &record->value_length);
    if (!at || (record->value_length > 0 ? record->value_length : 0) >= end - at) return 0;
    record->end = end;
    return 1;
}

int32_t ms_map_put_records(ms_offset_map *map, const uint8_t *records, int64_t size, int64_t count,
                           int64_t base_offset, int64_t start_offset) {
    const uint8_t *at = records, *end = records + size;
    span record;
    for (int64_t n = 0; n < count; n++) {
        if (!read_span(at, end, &record)) return -1;
        at = record.end;
        int64_t offset = add_wrapping(base_offset, record.offset_delta);
        if (record.key_length >= 0 && offset >= start_offset &&
            !put_key(map, record.key, record.key_length, offset))
            return 0;
    }
    return at == end ? 1 : -1;
}

/* The header of a batch, as far as it matters here. */
typedef struct {
    int64_t size;
    int64_t base_offset;
    int64_t last_offset;
    int64_t count;
    int attributes;
} header;

/* Reads the header of a whole plain batch with a good checksum; 0 for any other. */
MS_INLINE int read_plain(const uint8_t *at, int64_t left, header *batch) {
    if (left < HEADER_SIZE || at[16] != 2 || at[21] || at[22] & NOT_PLAIN) return 0;
    int64_t length = (int32_t)get_u32(at + 8), delta = (int32_t)get_u32(at + 23);
    batch->size = length + LENGTH_OVERHEAD;
    batch->base_offset = (int64_t)get_u64(at);
    batch->count = (int32_t)get_u32(at + 57);
    batch->attributes = at[22];
    if (batch->size < HEADER_SIZE || batch->size > left || delta < 0 || batch->count <= 0 ||
        batch->base_offset < 0 || batch->base_offset > INT64_MAX - delta)
        return 0;
    batch->last_offset = batch->base_offset + delta;
    return ms_crc32c(0, at + 21, batch->size - 21) == get_u32(at + 17);
}

int64_t ms_map_put_batches(ms_offset_map *map, const uint8_t *data, int64_t size, int64_t position,
                           int64_t start_offset, int32_t *is_full) {
    header batch;
    *is_full = 0;
    while (position < size && read_plain(data + position, size - position, &batch)) {
        if (batch.last_offset >= start_offset) {
            int done = ms_map_put_records(map, data + position + HEADER_SIZE,
                                          batch.size - HEADER_SIZE, batch.count,
                                          batch.base_offset, start_offset);
            if (done < 0) return position;
            if (done == 0) {
                *is_full = 1;
                return position;
            }
            if (batch.last_offset > map->latest_offset) map->latest_offset = batch.last_offset;
        }
        position += batch.size;
    }
    return position;
}

void ms_map_filter_records(const ms_offset_map *map, const uint8_t *records, int64_t size,
                           int64_t count, int64_t base_offset, int32_t retain_tombstones,
                           uint8_t *out, ms_retained *retained) {
    const uint8_t *at = records, *end = records + size;
    uint8_t *to = out;
    span record;
    retained->count = 0;
    retained->max_timestamp_delta = INT64_MIN;
    retained->has_tombstones = retained->is_corrupt = 0;
    for (int64_t n = 0; n < count; n++) {
        const uint8_t *start = at;
        if (!read_span(at, end, &record)) {
            retained->is_corrupt = 1;
            return;
        }
        at = record.end;
        int64_t offset = add_wrapping(base_offset, record.offset_delta);
        int is_tombstone = record.value_length < 0;
        if (offset <= map->latest_offset &&
            (record.key_length < 0 || (is_tombstone && !retain_tombstones) ||
             offset < offset_of(map, record.key, record.key_length)))
            continue;
        __builtin_memcpy(to, start, (uint64_t)(at - start));
        to += at - start;
        retained->count++;
        retained->has_tombstones |= is_tombstone;
        if (record.timestamp_delta > retained->max_timestamp_delta)
            retained->max_timestamp_delta = record.timestamp_delta;
    }
    retained->size = to - out;
    retained->is_corrupt = at != end;
}

static int holds(const int64_t *numbers, int64_t count, int64_t wanted) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (numbers[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && numbers[low] == wanted;
}

int64_t ms_map_filter_batches(const ms_offset_map *map, const uint8_t *data, int64_t size,
                              int64_t position, const int64_t *keep, int64_t keep_count,
                              uint8_t *out, int64_t *out_size) {
    header batch;
    ms_retained retained;
    uint8_t *to = out;
    while (position < size && read_plain(data + position, size - position, &batch)) {
        const uint8_t *at = data + position;
        if (holds(keep, keep_count, batch.last_offset)) break;
        ms_map_filter_records(map, at + HEADER_SIZE, batch.size - HEADER_SIZE, batch.count,
                              batch.base_offset, 1, to + HEADER_SIZE, &retained);
        if (retained.is_corrupt || retained.has_tombstones) break;
        if (retained.count == batch.count) {
            __builtin_memcpy(to, at, (uint64_t)batch.size);
            to += batch.size;
        } else if (retained.count) {
            int64_t new_size = HEADER_SIZE + retained.size;
            __builtin_memcpy(to, at, HEADER_SIZE);
            put_u32(to + 8, (uint32_t)(new_size - LENGTH_OVERHEAD));
            if (!(batch.attributes & LOG_APPEND_TIME))
                put_u64(to + 35, (uint64_t)add_wrapping((int64_t)get_u64(at + 27),
                                                        retained.max_timestamp_delta));
            put_u32(to + 57, (uint32_t)retained.count);
            put_u32(to + 17, ms_crc32c(0, to + 21, new_size - 21));
            to += new_size;
        }
        position += batch.size;
    }
    *out_size = to - out;
    return position;
}
