/* Numbers of JSON as doubles, floats and decimals: rounded once, or not at all. */
#ifndef MILLSTREAM_JSON_NUMBERS_H
#define MILLSTREAM_JSON_NUMBERS_H

#include "json_scan.h"

#define MOST_EXACT (1ull << 53)       /* all whole numbers up to here are doubles */
#define MOST_EXACT_FLOAT (1ull << 24) /* and floats */
#define MOST_TENS 22                  /* powers of ten up to here are doubles */
#define MOST_FIVES 27                 /* powers of five up to here have 64 bits */
#define MOST_DIGITS 19                /* numbers of so many digits have 64 bits */
#define ONE_DIGIT_MORE 1000000000000000000ull /* below it there is room for another digit */
#define EIGHT_DIGITS_MORE 100000000000ull

/* digits · 10^exponent, as it is written. */
typedef struct {
    uint64_t digits; /* up to MOST_DIGITS */
    int exponent;
    int is_negative;
    int is_whole; /* neither a fraction nor an exponent is written */
} written_number;

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Whether a token may end here: numbers and words are followed by nothing that goes on with them. */
MS_INLINE int is_end(const scan *s) {
    if (s->at >= s->end) return 0;
    if (MS_LIKELY(*s->at == ',' || *s->at == '}')) return 1;
    switch (*s->at) {
    case ']': case ' ': case '\n': case '\r': case '\t':
        return 1;
    default:
        return 0;
    }
}

/* Whether eight bytes are digits: each is 0x30 to 0x3F, and stays so with six more. */
MS_INLINE int are_8_digits(uint64_t word) {
    return (word & (word + ONES * 6) & (ONES * 0xF0)) == ONES * '0';
}

/* The number of eight digits: neighbours are joined to pairs, these to fours, these to the eight. */
MS_INLINE uint64_t number_of_8(uint64_t word) {
    word -= ONES * '0';
    word = (word * 10 + (word >> 8)) & 0x00FF00FF00FF00FFull;
    word = (word * 100 + (word >> 16)) & 0x0000FFFF0000FFFFull;
    return (word * 10000 + (word >> 32)) & 0xFFFFFFFF;
}

/* Goes over digits, which go on with those before; 0 where they are more than MOST_DIGITS,
 * without the zeros before. */
MS_INLINE int read_digits(scan *s, uint64_t *digits) {
    while (s->end - s->at >= 8 && *digits < EIGHT_DIGITS_MORE) {
        uint64_t word = load_8(s->at);
        if (!are_8_digits(word)) break;
        *digits = *digits * 100000000 + number_of_8(word);
        s->at += 8;
    }
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (*digits >= ONE_DIGIT_MORE) return 0;
        *digits = *digits * 10 + (*s->at - '0');
    }
    return 1;
}

/* The exponent of a number, which is there or not; 0 where there is none that is short. */
static int read_exponent(scan *s, int *exponent) {
    int is_negative = 0, size = 0, number = 0;
    s->at++;
    if (s->at < s->end && (*s->at == '-' || *s->at == '+')) is_negative = *s->at++ == '-';
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; size++) {
        if (size == 3) return 0;
        number = number * 10 + (*s->at++ - '0');
    }
    *exponent += is_negative ? -number : number;
    return size > 0;
}

/* Goes over a number; 0 for what is none, and for one that is too long. */
MS_INLINE int scan_number(scan *s, written_number *number) {
    const uint8_t *first;
    *number = (written_number){.is_whole = 1};
    number->is_negative = s->at < s->end && *s->at == '-';
    first = s->at += number->is_negative;
    if (!read_digits(s, &number->digits)) return 0;
    if (s->at == first || (*first == '0' && s->at - first > 1)) return 0;
    if (s->at < s->end && *s->at == '.') {
        const uint8_t *fraction = ++s->at;
        if (!read_digits(s, &number->digits)) return 0;
        if (s->at == fraction || s->at - fraction > INT16_MAX) return 0;
        number->exponent = -(int)(s->at - fraction);
        number->is_whole = 0;
    }
    if (s->at < s->end && (*s->at | 32) == 'e') {
        number->is_whole = 0;
        return read_exponent(s, &number->exponent);
    }
    return 1;
}

/* 2^exponent, of the exponents of normal doubles. */
MS_INLINE double power_of_two(int exponent) {
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* digits · 10^exponent for digits above 0 and exponents within MOST_FIVES.
 *
 * 10^n is 5^n · 2^n, and the factor 2^n changes no digit. The product with 5^n has 127 bits, so it
 * is exact. The quotient is taken to 63 bits or 64. Of either the first 64 bits are kept, with the
 * lowest one set if there is anything below: a double has 53, so the processor rounds them to the
 * nearest one, half to even, as it would round the whole. Nothing here is near the smallest or the
 * largest doubles. */
static double rounded(uint64_t digits, int exponent) {
    static const uint64_t FIVES[MOST_FIVES + 1] = {
        1ull, 5ull, 25ull, 125ull, 625ull, 3125ull, 15625ull, 78125ull, 390625ull, 1953125ull,
        9765625ull, 48828125ull, 244140625ull, 1220703125ull, 6103515625ull, 30517578125ull,
        152587890625ull, 762939453125ull, 3814697265625ull, 19073486328125ull,
        95367431640625ull, 476837158203125ull, 2384185791015625ull, 11920928955078125ull,
        59604644775390625ull, 298023223876953125ull, 1490116119384765625ull,
        7450580596923828125ull};
    uint64_t fives = FIVES[exponent < 0 ? -exponent : exponent], bits;
    int up = __builtin_clzll(digits), two = exponent;
    digits <<= up;
    two -= up;
    if (exponent < 0) {
        int fives_up = __builtin_clzll(fives);
        unsigned __int128 whole = (unsigned __int128)digits << 63;
        fives <<= fives_up;
        bits = (uint64_t)(whole / fives);
        bits |= (uint64_t)whole != bits * fives; /* the rest, which has 64 bits, is not 0 */
        two += fives_up - 63;
    } else {
        unsigned __int128 whole = (unsigned __int128)digits * fives;
        int more = whole >> 64 ? __builtin_clzll((uint64_t)(whole >> 64)) : 64;
        whole <<= more;
        bits = (uint64_t)(whole >> 64) | ((uint64_t)whole != 0);
        two += 64 - more;
    }
    return (double)bits * power_of_two(two);
}

/* The double that is nearest; 0 where that is not certain. */
MS_INLINE int to_double(const written_number *number, double *nearest) {
    int exponent = number->exponent;
    double found;
    /* A whole number that doubles do not have is no double; -0 is a whole number and is not. */
    if (number->is_whole && (number->digits > MOST_EXACT || (number->is_negative && !number->digits)))
        return 0;
    if (MS_LIKELY(number->digits <= MOST_EXACT && exponent >= -MOST_TENS && exponent <= MOST_TENS)) {
        found = (double)number->digits; /* exact, and so is the power: rounded once */
        found = exponent < 0 ? found / TENS[-exponent] : found * TENS[exponent];
    } else if (!number->digits || exponent < -MOST_FIVES || exponent > MOST_FIVES) {
        return 0;
    } else {
        found = rounded(number->digits, exponent);
    }
    *nearest = number->is_negative ? -found : found;
    return 1;
}

/* The float that is nearest; 0 where that is not certain: a double half way between two floats may
 * itself be rounded, and at both ends floats have rules of their own. */
MS_INLINE int to_float(const written_number *number, float *nearest) {
    double found, size;
    uint64_t bits;
    if (number->is_whole && number->digits > MOST_EXACT_FLOAT) return 0;
    if (!to_double(number, &found)) return 0;
    size = found < 0 ? -found : found;
    if (size && (size < 1e-37 || size > 1e38)) return 0;
    memcpy(&bits, &found, 8);
    if ((bits & 0x1FFFFFFF) == 0x10000000) return 0;
    *nearest = (float)found;
    return 1;
}

/* The number as so many hundredths, thousandths, ...; 0 where it has more of them or more digits. */
MS_INLINE int to_decimal(const written_number *number, int precision, int scale,
                         __int128 *decimal) {
    unsigned __int128 found = number->digits, bound = 1;
    int more = scale + number->exponent;
    /* With nineteen digits more it has 38 at most, for which 128 bits are enough. */
    if (number->exponent > 0 || more < 0 || more > MOST_DIGITS) return 0;
    for (int i = 0; i < more; i++) found *= 10;
    for (int i = 0; i < precision; i++) bound *= 10;
    if (found >= bound) return 0;
    *decimal = number->is_negative ? -(__int128)found : (__int128)found;
    return 1;
}

#endif
