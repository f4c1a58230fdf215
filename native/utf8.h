/* Whether bytes are text in UTF-8, by the rules of Python and of RFC 3629. */
#ifndef MILLSTREAM_UTF8_H
#define MILLSTREAM_UTF8_H

#include <stdint.h>

static int is_utf8(const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        uint8_t c = *at++, low = 0x80, high = 0xBF;
        int more;
        if (c < 0x80) continue;
        if (c >= 0xC2 && c <= 0xDF) {
            more = 1;
        } else if (c >= 0xE0 && c <= 0xEF) {
            more = 2;
            if (c == 0xE0) low = 0xA0;
            if (c == 0xED) high = 0x9F;
        } else if (c >= 0xF0 && c <= 0xF4) {
            more = 3;
            if (c == 0xF0) low = 0x90;
            if (c == 0xF4) high = 0x8F;
        } else {
            return 0;
        }
        if (end - at < more || *at < low || *at > high) return 0;
        for (int i = 1; i < more; i++)
            if ((at[i] & 0xC0) != 0x80) return 0;
        at += more;
    }
    return 1;
}

#endif
