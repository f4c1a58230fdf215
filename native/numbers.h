/* Big-endian numbers and zig-zag varints. */
#ifndef MILLSTREAM_NUMBERS_H
#define MILLSTREAM_NUMBERS_H

#include <stdint.h>

#define MS_INLINE static inline __attribute__((always_inline))
#define MS_LIKELY(x) __builtin_expect(!!(x), 1)
#define MS_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Every processor that the build knows is little-endian. */
MS_INLINE uint32_t get_u32(const uint8_t *at) {
    uint32_t number;
    __builtin_memcpy(&number, at, 4);
    return __builtin_bswap32(number);
}

MS_INLINE uint64_t get_u64(const uint8_t *at) {
    uint64_t number;
    __builtin_memcpy(&number, at, 8);
    return __builtin_bswap64(number);
}

MS_INLINE void put_u16(uint8_t *at, uint16_t number) {
    number = (uint16_t)(number << 8 | number >> 8);
    __builtin_memcpy(at, &number, 2);
}

MS_INLINE void put_u32(uint8_t *at, uint32_t number) {
    number = __builtin_bswap32(number);
    __builtin_memcpy(at, &number, 4);
}

MS_INLINE void put_u64(uint8_t *at, uint64_t number) {
    number = __builtin_bswap64(number);
    __builtin_memcpy(at, &number, 8);
}

/* Sums of untrusted numbers wrap, as Java's do. */
MS_INLINE int64_t add_wrapping(int64_t one, int64_t other) {
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

MS_INLINE int64_t subtract_wrapping(int64_t one, int64_t other) {
    return (int64_t)((uint64_t)one - (uint64_t)other);
}

/* Reads up to max_bytes bytes of seven bits; returns the place after them, NULL at the end of the
 * bytes or when the number goes on. */
static const uint8_t *read_long(const uint8_t *at, const uint8_t *end, int max_bytes,
                                uint64_t *number) {
    uint64_t value = 0;
    for (int i = 0; i < max_bytes && at < end; i++) {
        uint64_t byte = *at++;
        value |= (byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            *number = value;
            return at;
        }
    }
    return (const uint8_t *)0;
}

/* A number of 32 bits: bits above the 32nd in a fifth byte are dropped, as Kafka drops them. */
MS_INLINE const uint8_t *read_i32(const uint8_t *at, const uint8_t *end, int32_t *number) {
    uint64_t value;
    if (MS_LIKELY(end - at >= 2)) {
        uint32_t first = at[0], second = at[1];
        if (first < 0x80) {
            *number = (int32_t)(first >> 1 ^ -(first & 1));
            return at + 1;
        }
        if (second < 0x80) {
            first = (first & 0x7F) | second << 7;
            *number = (int32_t)(first >> 1 ^ -(first & 1));
            return at + 2;
        }
    }
    at = read_long(at, end, 5, &value);
    uint32_t low = (uint32_t)value;
    if (at) *number = (int32_t)(low >> 1 ^ -(low & 1));
    return at;
}

MS_INLINE const uint8_t *read_i64(const uint8_t *at, const uint8_t *end, int64_t *number) {
    uint64_t value;
    if (MS_LIKELY(end - at >= 1) && at[0] < 0x80) {
        value = at[0];
        at += 1;
    } else {
        at = read_long(at, end, 10, &value);
        if (!at) return at;
    }
    *number = (int64_t)(value >> 1 ^ -(value & 1));
    return at;
}

MS_INLINE uint64_t zigzag(int64_t number) {
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

MS_INLINE int varint_size(uint64_t zigzagged) {
    int bits = 64 - __builtin_clzll(zigzagged | 1);
    return (bits * 9 + 64) >> 6;
}

MS_INLINE uint8_t *write_varint(uint8_t *at, uint64_t zigzagged) {
    while (zigzagged >= 0x80) {
        *at++ = (uint8_t)(zigzagged | 0x80);
        zigzagged >>= 7;
    }
    *at++ = (uint8_t)zigzagged;
    return at;
}

#endif
