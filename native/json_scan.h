/* Reads JSON token by token (RFC 8259), of bytes that nobody has looked at yet. */
#ifndef MILLSTREAM_JSON_SCAN_H
#define MILLSTREAM_JSON_SCAN_H

#include "kernel.h"
#include "numbers.h"
#include "utf8.h"
#include "wide.h"

#include <string.h>

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int high;    /* bytes above 127 were seen */
    int breaks;  /* line breaks were seen */
    int escapes; /* a text had some */
} scan;

MS_INLINE void skip_space(scan *s) {
    if (MS_LIKELY(s->at < s->end && *s->at > ' ')) return;
    while (s->at < s->end) {
        uint8_t c = *s->at;
        if (c == '\n' || c == '\r')
            s->breaks = 1;
        else if (c != ' ' && c != '\t')
            return;
        s->at++;
    }
}

/* Four hexadecimal digits; -1 where there are others. */
static int32_t hex4(const uint8_t *at, const uint8_t *end) {
    int32_t number = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i], low = c | 32;
        if (c >= '0' && c <= '9')
            number = number << 4 | (c - '0');
        else if (low >= 'a' && low <= 'f')
            number = number << 4 | (low - 'a' + 10);
        else
            return -1;
    }
    return number;
}

static int skip_escape(scan *s) {
    int32_t unit, second;
    s->escapes = 1;
    if (++s->at >= s->end) return 0;
    switch (*s->at++) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return 1;
    case 'u':
        break;
    default:
        return 0;
    }
    if ((unit = hex4(s->at, s->end)) < 0) return 0;
    s->at += 4;
    if (unit < 0xD800 || unit > 0xDFFF) return 1;
    if (unit > 0xDBFF || s->end - s->at < 6 || s->at[0] != '\\' || s->at[1] != 'u') return 0;
    second = hex4(s->at + 2, s->end);
    s->at += 6;
    return second >= 0xDC00 && second <= 0xDFFF;
}

/* Goes from behind the opening quote to behind the closing one. */
static int skip_string(scan *s) {
    const uint8_t *at = s->at, *end = s->end;
    for (;;) {
        int64_t plain = WIDE;
        uint8_t c;
        while (plain == WIDE && end - at >= WIDE) at += plain = plain_16(NULL, at);
        if (at >= end) return 0;
        c = *at;
        if (c == '"') {
            s->at = at + 1;
            return 1;
        }
        if (c < 0x20) return 0;
        if (c == '\\') {
            s->at = at;
            if (!skip_escape(s)) return 0;
            at = s->at;
            continue;
        }
        if (c >= 0x80) s->high = 1;
        do at++;
        while (at < end && *at >= 0x80 && c >= 0x80);
    }
}

static int skip_digits(scan *s) {
    const uint8_t *first = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    return s->at > first;
}

/* The kind of a number; 0 when it is none. */
static int skip_number(scan *s) {
    int kind = MS_JSON_INTEGER;
    if (*s->at == '-') s->at++;
    if (s->at >= s->end) return 0;
    if (*s->at == '0')
        s->at++;
    else if (!skip_digits(s))
        return 0;
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        kind = MS_JSON_FRACTION;
        if (!skip_digits(s)) return 0;
    }
    if (s->at < s->end && (*s->at | 32) == 'e') {
        s->at++;
        kind = MS_JSON_FRACTION;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-')) s->at++;
        if (!skip_digits(s)) return 0;
    }
    return kind;
}

static int skip_word(scan *s, const char *word, int64_t length) {
    if (s->end - s->at < length || memcmp(s->at, word, (size_t)length)) return 0;
    s->at += length;
    return 1;
}

#endif
