/* Texts of JSON without their escapes. */
#ifndef MILLSTREAM_JSON_TEXT_H
#define MILLSTREAM_JSON_TEXT_H

#include "json_scan.h"

static uint8_t *put_utf8(uint8_t *to, uint32_t point) {
    if (point < 0x80) {
        *to++ = (uint8_t)point;
    } else if (point < 0x800) {
        *to++ = (uint8_t)(0xC0 | point >> 6);
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        *to++ = (uint8_t)(0xE0 | point >> 12);
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    } else {
        *to++ = (uint8_t)(0xF0 | point >> 18);
        *to++ = (uint8_t)(0x80 | (point >> 12 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    }
    return to;
}

/* Writes a text that skip_string went over; it never becomes longer. */
static uint8_t *unescape(uint8_t *to, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        uint32_t point;
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        at += 2;
        switch (at[-1]) {
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'u':
            point = (uint32_t)hex4(at, end);
            at += 4;
            if (point >= 0xD800 && point <= 0xDBFF) {
                point = 0x10000 + ((point - 0xD800) << 10) + (uint32_t)hex4(at + 2, end) - 0xDC00;
                at += 6;
            }
            to = put_utf8(to, point);
            break;
        default: *to++ = at[-1];
        }
    }
    return to;
}

#endif
