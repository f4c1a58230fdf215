/* Looks at sixteen bytes of text at a time. */
#ifndef MILLSTREAM_WIDE_H
#define MILLSTREAM_WIDE_H

#include "numbers.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define WIDE 16
#define HIGH 0x8080808080808080ull
#define ONES 0x0101010101010101ull

MS_INLINE uint64_t load_8(const uint8_t *at) {
    uint64_t word;
    __builtin_memcpy(&word, at, 8);
    return word;
}

/* A bit that is set in each byte of a word that does not stand for itself in a text of JSON: a
 * quote, a backslash, one below a space, or of no ASCII. The lowest one is one; of those above it
 * that is not certain. */
MS_INLINE uint64_t special_8(uint64_t word) {
    uint64_t quotes = word ^ (ONES * '"'), slashes = word ^ (ONES * '\\');
    uint64_t special = ((quotes - ONES) & ~quotes) | ((slashes - ONES) & ~slashes);
    special |= (word - ONES * 0x20) & ~word;
    return (special | word) & HIGH;
}

/* How many of the next sixteen bytes stand for themselves up to the first that does not; all are
 * copied, unless to is NULL. */
MS_INLINE int64_t plain_16(uint8_t *to, const uint8_t *at) {
#if defined(__x86_64__)
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    /* Signed: what is no ASCII is below zero. */
    __m128i special = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
    int found;
    special = _mm_or_si128(special, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')));
    special = _mm_or_si128(special, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    if (to) _mm_storeu_si128((__m128i *)to, bytes);
    found = _mm_movemask_epi8(special);
    return found ? __builtin_ctz((unsigned)found) : WIDE;
#else
    uint64_t low = special_8(load_8(at)), high = special_8(load_8(at + 8));
    if (to) __builtin_memcpy(to, at, WIDE);
    if (low) return __builtin_ctzll(low) >> 3;
    return high ? 8 + (__builtin_ctzll(high) >> 3) : WIDE;
#endif
}

/* Copies bytes, and returns whether all are ASCII. Neither reads nor writes beyond them: pieces of
 * the largest size that fits, of which the last ones overlap. */
MS_INLINE int copy_ascii(uint8_t *to, const uint8_t *at, int64_t size) {
    uint64_t seen = 0, first, last;
    if (size >= 8) {
        int64_t place = 0;
        last = load_8(at + size - 8);
        for (; place < size - 8; place += 8) {
            first = load_8(at + place);
            seen |= first;
            __builtin_memcpy(to + place, &first, 8);
        }
        __builtin_memcpy(to + size - 8, &last, 8);
        return !((seen | last) & HIGH);
    }
    if (size >= 4) {
        uint32_t one, other;
        __builtin_memcpy(&one, at, 4);
        __builtin_memcpy(&other, at + size - 4, 4);
        __builtin_memcpy(to, &one, 4);
        __builtin_memcpy(to + size - 4, &other, 4);
        return !((one | other) & (uint32_t)HIGH);
    }
    for (int64_t i = 0; i < size; i++) seen |= to[i] = at[i];
    return !(seen & 0x80);
}

/* Whether two names of one size are the same. Eight bytes may be read from either, however short
 * they are. */
MS_INLINE int is_same_name(const uint8_t *one, const uint8_t *other, int64_t size) {
    if (size <= 8) {
        uint64_t different = load_8(one) ^ load_8(other);
        return !size || !(different << (64 - 8 * size));
    }
    for (int64_t place = 0; place < size - 8; place += 8)
        if (load_8(one + place) != load_8(other + place)) return 0;
    return load_8(one + size - 8) == load_8(other + size - 8);
}

#endif
