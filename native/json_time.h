/* Times in texts, as ISO 8601 has them. */
#ifndef MILLSTREAM_JSON_TIME_H
#define MILLSTREAM_JSON_TIME_H

#include "wide.h"

#include <string.h>

#define LEAST_TIME 19
#define DAY_SIZE 10

/* The day that was read last: most records are of one. */
typedef struct {
    uint8_t text[DAY_SIZE];
    int64_t number; /* since 1970 */
    int is_known;
} last_day;

/* Two digits as a number, at most 99; beyond that for anything else. */
MS_INLINE unsigned two_at(const uint8_t *at) {
    unsigned first = (unsigned)at[0] - '0', second = (unsigned)at[1] - '0';
    return first <= 9 && second <= 9 ? 10 * first + second : 100;
}

/* Days since 1970 (Howard Hinnant, days_from_civil); month and day are ones of the calendar. */
static int64_t days_of(int year, int month, int day) {
    int y = year - (month <= 2), era = y / 400, of_era = y - era * 400;
    int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int is_day(int year, int month, int day) {
    static const uint8_t DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (month < 1 || month > 12 || day < 1) return 0;
    return day <= DAYS[month - 1] + (month == 2 && is_leap);
}

/* A day of the years 2 to 9998; 0 for another one, and for what is none. */
MS_INLINE int day_at(last_day *last, const uint8_t *at, int64_t *number) {
    unsigned century, year, month, day;
    if (MS_LIKELY(last->is_known && !memcmp(last->text, at, DAY_SIZE))) {
        *number = last->number;
        return 1;
    }
    century = two_at(at), year = two_at(at + 2), month = two_at(at + 5), day = two_at(at + 8);
    if (century > 99 || year > 99 || month > 99 || day > 99 || at[4] != '-' || at[7] != '-')
        return 0;
    year += 100 * century;
    if (year < 2 || year > 9998 || !is_day((int)year, (int)month, (int)day)) return 0;
    memcpy(last->text, at, DAY_SIZE);
    last->number = *number = days_of((int)year, (int)month, (int)day);
    last->is_known = 1;
    return 1;
}

/* Microseconds of a fraction of a second, of up to six digits; NULL where there are none. */
MS_INLINE const uint8_t *fraction_at(const uint8_t *at, const uint8_t *end, int64_t *micros) {
    int scale = 1000000;
    for (; at < end && *at >= '0' && *at <= '9' && scale > 1; at++) {
        scale /= 10;
        *micros += (*at - '0') * scale;
    }
    return scale == 1000000 ? NULL : at;
}

/* 2024-01-31T10:00:00, with a space for the T, with a fraction, with Z or +02:00 unless it is
 * local. Other forms are left to Python, as are the first and the last year, in which a zone
 * matters: 0. */
MS_INLINE int time_at(last_day *last, const uint8_t *at, int64_t size, int is_local,
                      int64_t *time) {
    const uint8_t *end = at + size;
    unsigned hour, minute, second;
    int64_t days, seconds, fraction = 0;
    if (size < LEAST_TIME || !day_at(last, at, &days)) return 0;
    if ((at[10] != 'T' && at[10] != ' ') || at[13] != ':' || at[16] != ':') return 0;
    hour = two_at(at + 11), minute = two_at(at + 14), second = two_at(at + 17);
    if (hour > 23 || minute > 59 || second > 59) return 0;
    seconds = days * 86400 + hour * 3600 + minute * 60 + second;
    at += LEAST_TIME;
    if (at < end && *at == '.' && !(at = fraction_at(at + 1, end, &fraction))) return 0;
    if (at < end) {
        if (is_local) return 0;
        if (*at == '+' || *at == '-') {
            if (end - at != 6 || at[3] != ':') return 0;
            hour = two_at(at + 1), minute = two_at(at + 4);
            if (hour > 23 || minute > 59) return 0;
            seconds += (*at == '+' ? -1 : 1) * (int64_t)(hour * 3600 + minute * 60);
        } else if (*at != 'Z' || end - at != 1) {
            return 0;
        }
    }
    *time = seconds * 1000000 + fraction;
    return 1;
}

#endif
