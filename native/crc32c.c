/* CRC-32C (Castagnoli): the processor's own instruction where it has one, tables elsewhere.
 *
 * The instruction takes eight bytes and waits three cycles for its answer, so long inputs go in
 * three streams at once. Their sums are joined by "and then this many zero bytes", a linear map
 * of the sum, kept as four tables of 256 entries. */
#include "kernel.h"
#include "numbers.h"

#define POLYNOMIAL 0x82F63B78u
#define LANE 1024 /* bytes of one stream */

static uint32_t bytes_table[8][256];
static uint32_t lane_table[4][256];

static uint32_t by_tables(uint32_t sum, const uint8_t *data, int64_t size) {
    while (size >= 8) {
        uint64_t word;
        __builtin_memcpy(&word, data, 8);
        word ^= sum;
        sum = 0;
        for (int i = 0; i < 8; i++) sum ^= bytes_table[7 - i][word >> (8 * i) & 0xFF];
        data += 8;
        size -= 8;
    }
    while (size-- > 0) sum = bytes_table[0][(sum ^ *data++) & 0xFF] ^ sum >> 8;
    return sum;
}

/* The tables are made when the library is loaded, before anything can call it. */
__attribute__((constructor)) static void make_tables(void) {
    static const uint8_t zeros[8] = {0};
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t sum = n;
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? POLYNOMIAL : 0);
        bytes_table[0][n] = sum;
    }
    for (int row = 1; row < 8; row++)
        for (int n = 0; n < 256; n++) {
            uint32_t before = bytes_table[row - 1][n];
            bytes_table[row][n] = bytes_table[0][before & 0xFF] ^ before >> 8;
        }
    for (int row = 0; row < 4; row++)
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t sum = n << (8 * row);
            for (int i = 0; i < LANE; i += 8) sum = by_tables(sum, zeros, 8);
            lane_table[row][n] = sum;
        }
}

#if defined(__x86_64__) || (defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__)))

MS_INLINE uint32_t after_a_lane(uint32_t sum) {
    return lane_table[0][sum & 0xFF] ^ lane_table[1][sum >> 8 & 0xFF] ^
           lane_table[2][sum >> 16 & 0xFF] ^ lane_table[3][sum >> 24];
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#if defined(__clang__)
#define WITH_CRC __attribute__((target("sse4.2,crc32")))
#else
#define WITH_CRC __attribute__((target("sse4.2")))
#endif
#define CRC8(sum, byte) _mm_crc32_u8((uint32_t)(sum), (byte))
#define CRC64(sum, word) _mm_crc32_u64((sum), (word))
typedef uint64_t lane_sum;

static int has_instruction(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 20));
}
#else
#include <arm_acle.h>
#if defined(__clang__)
#define WITH_CRC __attribute__((target("crc")))
#else
#define WITH_CRC __attribute__((target("+crc")))
#endif
#define CRC8(sum, byte) __crc32cb((sum), (byte))
#define CRC64(sum, word) __crc32cd((sum), (word))
typedef uint32_t lane_sum;

#if defined(__linux__)
#include <sys/auxv.h>
static int has_instruction(void) { return (getauxval(AT_HWCAP) & (1u << 7)) != 0; }
#else
static int has_instruction(void) { return 1; }
#endif
#endif

MS_INLINE uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    __builtin_memcpy(&word, at, 8);
    return word;
}

WITH_CRC static uint32_t by_instruction(uint32_t start, const uint8_t *data, int64_t size) {
    lane_sum sum = start;
    while (size >= 3 * LANE) {
        lane_sum second = 0, third = 0;
        for (int i = 0; i < LANE; i += 8) {
            sum = CRC64(sum, word_at(data + i));
            second = CRC64(second, word_at(data + LANE + i));
            third = CRC64(third, word_at(data + 2 * LANE + i));
        }
        sum = after_a_lane((uint32_t)sum) ^ second;
        sum = after_a_lane((uint32_t)sum) ^ third;
        data += 3 * LANE;
        size -= 3 * LANE;
    }
    for (; size >= 8; size -= 8, data += 8) sum = CRC64(sum, word_at(data));
    while (size-- > 0) sum = CRC8(sum, *data++);
    return (uint32_t)sum;
}

#else
static int has_instruction(void) { return 0; }
#define by_instruction by_tables
#endif

static int use_instruction = 0;

__attribute__((constructor)) static void look_at_the_processor(void) {
    use_instruction = has_instruction();
}

uint32_t ms_crc32c(uint32_t crc, const uint8_t *data, int64_t size) {
    return ~(use_instruction ? by_instruction(~crc, data, size) : by_tables(~crc, data, size));
}

/* The path without the instruction, for tests. */
MS_API uint32_t ms_crc32c_by_tables(uint32_t crc, const uint8_t *data, int64_t size) {
    return ~by_tables(~crc, data, size);
}
