/* The cleaner's map of keys, and compaction of many batches at once.
 *
 * What millstream.storage.offset_map does in Python, which decides what is right; mirrored by
 * millstream.records.cleaner_kernel. Batches that are more than plain data (compressed, part of a
 * transaction, markers, with a delete horizon or with tombstones to give one) stop the walk and are
 * left to the caller. Input is never trusted; nothing is allocated; no two calls may use the same
 * map at a time. */
#ifndef MILLSTREAM_CLEANER_H
#define MILLSTREAM_CLEANER_H

#include "kernel.h"

/* Raised with every change below; the loader refuses another number. */
#define MS_CLEANER_ABI 1

MS_API int32_t ms_cleaner_abi(void);

/* Slots of 24 bytes: 16 of the key's digest, then the offset + 1, 0 where the slot is free. */
typedef struct {
    uint8_t *table;
    int64_t slots;
    int64_t capacity; /* keys that it takes in, fewer than slots */
    int64_t count;
    int64_t latest_offset; /* up to here the map knows the log */
    uint64_t seed[2];
} ms_offset_map;

/* SipHash-2-4 with 128 bits of the key under the map's seed. */
MS_API void ms_map_digest(const ms_offset_map *map, const uint8_t *key, int64_t size,
                          uint8_t *digest);

/* Notes a key's offset; 0 when the map is full. */
MS_API int32_t ms_map_put(ms_offset_map *map, const uint8_t *key, int64_t size, int64_t offset);

/* Returns a key's offset, -1 when the map does not hold it. */
MS_API int64_t ms_map_get(const ms_offset_map *map, const uint8_t *key, int64_t size);

/* Takes in the keys of count records from start_offset on. 1: done, 0: the map is full, -1: these
 * are not so many records. */
MS_API int32_t ms_map_put_records(ms_offset_map *map, const uint8_t *records, int64_t size,
                                  int64_t count, int64_t base_offset, int64_t start_offset);

/* Takes in the plain batches from position on; returns where it stopped. */
MS_API int64_t ms_map_put_batches(ms_offset_map *map, const uint8_t *data, int64_t size,
                                  int64_t position, int64_t start_offset, int32_t *is_full);

/* What a filtering left. */
typedef struct {
    int64_t count;
    int64_t size;
    int64_t max_timestamp_delta;
    int32_t has_tombstones;
    int32_t is_corrupt;
} ms_retained;

/* Copies to out, which has room for size bytes, the records that the map knows no later one of. */
MS_API void ms_map_filter_records(const ms_offset_map *map, const uint8_t *records, int64_t size,
                                  int64_t count, int64_t base_offset, int32_t retain_tombstones,
                                  uint8_t *out, ms_retained *retained);

/* Filters the plain batches from position on to out, which has room for size - position bytes;
 * returns where it stopped. Batches that end with one of keep, ascending, stop it. */
MS_API int64_t ms_map_filter_batches(const ms_offset_map *map, const uint8_t *data, int64_t size,
                                     int64_t position, const int64_t *keep, int64_t keep_count,
                                     uint8_t *out, int64_t *out_size);

#endif
