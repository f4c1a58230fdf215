/* JSON objects into Arrow columns. */
#include "json_columns.h"

#include "json_scan.h"
#include "rows_in.h"

#define MOST_DEEP 50
#define MOST_EXACT (1ll << 53)

int32_t ms_json_columns_abi(void) { return MS_JSON_COLUMNS_ABI; }

typedef struct {
    out_table table;
    scan s;
    const ms_json_field *fields;
    int64_t count;
    int deep;
    int skip_unknown;
} reader;

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Whether a token may end here: numbers and words are followed by nothing that goes on with them. */
static int is_end(const scan *s) {
    if (s->at >= s->end) return 0;
    switch (*s->at) {
    case ',': case '}': case ']': case ' ': case '\n': case '\r': case '\t':
        return 1;
    default:
        return 0;
    }
}

/* Goes over a text and tells where it stands, without its quotes; 0 for what is none. */
static int text_at(scan *s, const uint8_t **text, int64_t *size) {
    if (s->at >= s->end || *s->at != '"') return 0;
    *text = ++s->at;
    s->high = s->escapes = 0;
    if (!skip_string(s)) return 0;
    *size = s->at - 1 - *text;
    return !s->high || is_utf8(*text, *text + *size);
}

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

/* Writes a text that text_at went over; it never becomes longer. */
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

static int read_text(reader *r, int64_t column) {
    const uint8_t *text;
    uint8_t *to;
    int64_t size;
    if (!text_at(&r->s, &text, &size)) return 0;
    to = out_data(&r->table, column, size);
    if (!to) return 0;
    if (r->s.escapes)
        size = unescape(to, text, text + size) - to;
    else
        memcpy(to, text, (size_t)size);
    out_data_done(r->table.columns + column, size);
    return 1;
}

/* A whole number of up to 18 digits, and not -0. */
static int read_integer(reader *r, int64_t column) {
    scan *s = &r->s;
    int is_negative = s->at < s->end && *s->at == '-';
    const uint8_t *first = s->at += is_negative;
    int64_t number = 0;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - first < 18)
        number = number * 10 + (*s->at++ - '0');
    if (s->at == first || !is_end(s)) return 0;
    if (*first == '0' && (is_negative || s->at - first > 1)) return 0;
    if (is_negative) number = -number;
    if (r->fields[column].takes == MS_TAKES_64) return out_64(&r->table, column, number);
    if (number < INT32_MIN || number > INT32_MAX) return 0;
    return out_32(&r->table, column, (int32_t)number);
}

/* The exponent of a number, which is there or not; 0 where there is none that is short. */
static int read_exponent(scan *s, int *exponent) {
    int is_negative = 0, size = 0, number = 0;
    if (s->at >= s->end || (*s->at | 32) != 'e') return 1;
    s->at++;
    if (s->at < s->end && (*s->at == '-' || *s->at == '+')) is_negative = *s->at++ == '-';
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; size++) {
        if (size == 3) return 0;
        number = number * 10 + (*s->at++ - '0');
    }
    *exponent += is_negative ? -number : number;
    return size > 0;
}

/* A number whose digits and whose power of ten a double holds: its quotient or product is rounded
 * once, and so right. */
static int read_double(reader *r, int64_t column) {
    scan *s = &r->s;
    int is_negative = s->at < s->end && *s->at == '-', exponent = 0;
    const uint8_t *first = s->at += is_negative;
    int64_t digits = 0, bits;
    double number;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - first < 18)
        digits = digits * 10 + (*s->at++ - '0');
    if (s->at == first || (*first == '0' && s->at - first > 1)) return 0;
    if (s->at < s->end && *s->at == '.') {
        const uint8_t *fraction = ++s->at;
        while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - first < 19)
            digits = digits * 10 + (*s->at++ - '0');
        if (s->at == fraction) return 0;
        exponent = -(int)(s->at - fraction);
    }
    if (!read_exponent(s, &exponent) || !is_end(s)) return 0;
    if (digits > MOST_EXACT || exponent < -22 || exponent > 22 || (is_negative && !digits)) return 0;
    number = (double)digits;
    number = exponent < 0 ? number / POWERS[-exponent] : number * POWERS[exponent];
    if (is_negative) number = -number;
    memcpy(&bits, &number, 8);
    return out_64(&r->table, column, bits);
}

static int read_boolean(reader *r, int64_t column) {
    int is_true = r->s.at < r->s.end && *r->s.at == 't';
    if (!skip_word(&r->s, is_true ? "true" : "false", is_true ? 4 : 5) || !is_end(&r->s)) return 0;
    return out_bit(&r->table, column, is_true);
}

/* So many digits as a number; -1 for anything else. */
static int digits_at(const uint8_t *at, int count) {
    int number = 0;
    for (int i = 0; i < count; i++) {
        if (at[i] < '0' || at[i] > '9') return -1;
        number = number * 10 + (at[i] - '0');
    }
    return number;
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

/* 2024-01-31T10:00:00, with a space for the T, with a fraction, with Z or +02:00. Other forms are
 * left to Python, as are the first and the last year, in which a zone matters. */
static int read_time(reader *r, int64_t column) {
    const uint8_t *at, *end;
    int year, month, day, hour, minute, second, fraction = 0;
    int64_t size, micros;
    if (!text_at(&r->s, &at, &size) || size < 19) return 0;
    end = at + size;
    year = digits_at(at, 4), month = digits_at(at + 5, 2), day = digits_at(at + 8, 2);
    hour = digits_at(at + 11, 2), minute = digits_at(at + 14, 2), second = digits_at(at + 17, 2);
    if (at[4] != '-' || at[7] != '-' || (at[10] != 'T' && at[10] != ' ')) return 0;
    if (at[13] != ':' || at[16] != ':' || year < 2 || year > 9998 || !is_day(year, month, day))
        return 0;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) return 0;
    micros = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    at += 19;
    if (at < end && *at == '.') {
        int scale = 1000000;
        for (at++; at < end && *at >= '0' && *at <= '9' && scale > 1; at++) {
            scale /= 10;
            fraction += (*at - '0') * scale;
        }
        if (scale == 1000000) return 0;
    }
    if (at < end) {
        if (r->fields[column].takes == MS_TAKES_LOCAL) return 0;
        if (*at == '+' || *at == '-') {
            if (end - at != 6 || at[3] != ':') return 0;
            hour = digits_at(at + 1, 2), minute = digits_at(at + 4, 2);
            if (hour < 0 || hour > 23 || minute < 0 || minute > 59) return 0;
            micros += (*at == '+' ? -1 : 1) * (hour * 3600 + minute * 60);
        } else if (*at != 'Z' || end - at != 1) {
            return 0;
        }
    }
    return out_64(&r->table, column, micros * 1000000 + fraction);
}

/* Goes over a value of any kind. */
static int skip_value(reader *r) {
    scan *s = &r->s;
    const uint8_t *text;
    int64_t size;
    int is_object, done = 1;
    if (s->at >= s->end) return 0;
    switch (*s->at) {
    case '"':
        return text_at(s, &text, &size);
    case 't':
        return skip_word(s, "true", 4) && is_end(s);
    case 'f':
        return skip_word(s, "false", 5) && is_end(s);
    case 'n':
        return skip_word(s, "null", 4) && is_end(s);
    case '{':
    case '[':
        break;
    default:
        if (*s->at != '-' && (*s->at < '0' || *s->at > '9')) return 0;
        return skip_number(s) && is_end(s);
    }
    is_object = *s->at++ == '{';
    if (r->deep >= MOST_DEEP) return 0;
    r->deep++;
    skip_space(s);
    if (s->at < s->end && *s->at == (is_object ? '}' : ']')) {
        s->at++;
        r->deep--;
        return 1;
    }
    for (;;) {
        if (is_object) {
            if (!text_at(s, &text, &size)) return 0;
            skip_space(s);
            if (s->at >= s->end || *s->at++ != ':') return 0;
            skip_space(s);
        }
        if (!skip_value(r)) return 0;
        skip_space(s);
        if (s->at >= s->end) return 0;
        done = *s->at++;
        if (done == (is_object ? '}' : ']')) break;
        if (done != ',') return 0;
        skip_space(s);
    }
    r->deep--;
    return 1;
}

static int read_value(reader *r, int64_t column);

/* The column of a field, between first and stop; looked for from guess on; -1: there is none. */
MS_INLINE int64_t column_of(const reader *r, const uint8_t *name, int64_t size, int64_t first,
                            int64_t stop, int64_t guess) {
    int64_t i = guess;
    if (first >= stop) return -1;
    do {
        if (r->fields[i].name_size == size && !memcmp(r->fields[i].name, name, (size_t)size))
            return i;
        i = r->table.columns[i].end;
        if (i >= stop) i = first;
    } while (i != guess);
    return -1;
}

/* An object whose fields go to the columns from first to stop, of which length entries each are
 * written; so a field that was seen has one more. */
static int read_object(reader *r, int64_t first, int64_t stop, int64_t length) {
    scan *s = &r->s;
    int64_t guess = first;
    if (s->at >= s->end || *s->at++ != '{' || r->deep >= MOST_DEEP) return 0;
    r->deep++;
    skip_space(s);
    if (s->at < s->end && *s->at == '}') {
        s->at++;
    } else {
        for (;;) {
            const uint8_t *name;
            int64_t size, column;
            int after;
            if (!text_at(s, &name, &size) || s->escapes) return 0;
            column = column_of(r, name, size, first, stop, guess);
            skip_space(s);
            if (s->at >= s->end || *s->at++ != ':') return 0;
            skip_space(s);
            if (column < 0) {
                if (!r->skip_unknown || !skip_value(r)) return 0;
            } else {
                if (r->table.columns[column].length != length || !read_value(r, column)) return 0;
                guess = r->table.columns[column].end;
                if (guess >= stop) guess = first;
            }
            skip_space(s);
            if (s->at >= s->end) return 0;
            after = *s->at++;
            if (after == '}') break;
            if (after != ',') return 0;
            skip_space(s);
        }
    }
    for (int64_t i = first; i < stop; i = r->table.columns[i].end)
        if (r->table.columns[i].length == length && !out_null(&r->table, i)) return 0;
    r->deep--;
    return 1;
}

static int read_list(reader *r, int64_t column) {
    scan *s = &r->s;
    if (s->at >= s->end || *s->at++ != '[' || r->deep >= MOST_DEEP) return 0;
    r->deep++;
    skip_space(s);
    if (s->at < s->end && *s->at == ']') {
        s->at++;
    } else {
        for (;;) {
            int after;
            if (!read_value(r, column + 1)) return 0;
            skip_space(s);
            if (s->at >= s->end) return 0;
            after = *s->at++;
            if (after == ']') break;
            if (after != ',') return 0;
            skip_space(s);
        }
    }
    r->deep--;
    return out_list(&r->table, column);
}

static int read_value(reader *r, int64_t column) {
    const ms_out *out = r->table.columns + column;
    if (r->s.at < r->s.end && *r->s.at == 'n')
        return skip_word(&r->s, "null", 4) && is_end(&r->s) && out_null(&r->table, column);
    switch (r->fields[column].takes) {
    case MS_TAKES_TEXT:
        return read_text(r, column);
    case MS_TAKES_32:
    case MS_TAKES_64:
        return read_integer(r, column);
    case MS_TAKES_DOUBLE:
        return read_double(r, column);
    case MS_TAKES_BOOLEAN:
        return read_boolean(r, column);
    case MS_TAKES_INSTANT:
    case MS_TAKES_LOCAL:
        return read_time(r, column);
    case MS_TAKES_OBJECT:
        return read_object(r, column + 1, out->end, out->length) && out_struct(&r->table, column);
    default:
        return read_list(r, column);
    }
}

/* One value, which is an object and nothing more, or null. */
static int read_row(void *reader_, const uint8_t *data, int64_t length, int64_t written) {
    reader *r = reader_;
    if (length < 0) {
        for (int64_t i = 0; i < r->count; i = r->table.columns[i].end)
            if (!out_null(&r->table, i)) return 0;
        return 1;
    }
    r->s = (scan){.at = data, .end = data + length};
    r->deep = 0;
    skip_space(&r->s);
    if (!read_object(r, 0, r->count, written)) return 0;
    skip_space(&r->s);
    return r->s.at == r->s.end;
}

int64_t ms_json_rows(const ms_json_field *fields, int64_t skip_unknown, const ms_binary_in *values,
                     int64_t first, int64_t rows, ms_out *columns, int64_t count,
                     int64_t *written, uint8_t *states, ms_fault *fault) {
    reader r = {.table = {.columns = columns, .full = -1}, .fields = fields, .count = count};
    r.skip_unknown = skip_unknown != 0;
    return read_rows(read_row, &r, &r.table, count, values, first, rows, written, states, fault);
}
