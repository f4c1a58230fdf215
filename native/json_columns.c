/* JSON objects into Arrow columns. */
#include "json_columns.h"

#include "json_numbers.h"
#include "json_text.h"
#include "json_time.h"
#include "rows_in.h"
#include "sorted_names.h"

#define MOST_DEEP 50

int32_t ms_json_columns_abi(void) { return MS_JSON_COLUMNS_ABI; }

typedef struct {
    out_table table;
    scan s;
    const ms_json_field *fields;
    int64_t count;
    last_day day;
    int deep;
    int skip_unknown;
    int64_t compared; /* names, to find columns */
} reader;

/* Goes over a text and tells where it stands, without its quotes; 0 for what is none. */
static int text_at(scan *s, const uint8_t **text, int64_t *size) {
    if (s->at >= s->end || *s->at != '"') return 0;
    *text = ++s->at;
    s->high = s->escapes = 0;
    if (!skip_string(s)) return 0;
    *size = s->at - 1 - *text;
    return !s->high || is_utf8(*text, *text + *size);
}

/* A text of nothing but bytes that stand for themselves, copied while it is looked at; 0 for
 * another one, and where room is short. */
MS_INLINE int read_plain_text(scan *s, ms_out *out) {
    const uint8_t *at = s->at + 1;
    uint8_t *start = out->data + out->bytes, *to = start;
    int64_t left = s->end - at, room = out->data_capacity - out->bytes, plain = WIDE;
    if (room < left) left = room;
    /* Whatever the room: the offsets are of 32 bits. */
    if (INT32_MAX - out->bytes < left) left = INT32_MAX - out->bytes;
    for (; plain == WIDE && left >= WIDE; left -= plain, at += plain) to += plain = plain_16(to, at);
    for (; plain == WIDE && left > 0 && *at != '"'; left--) {
        if (*at < 0x20 || *at >= 0x80 || *at == '\\') return 0;
        *to++ = *at++;
    }
    if (left <= 0 || *at != '"') return 0;
    s->at = at + 1;
    out_data_done(out, to - start);
    return 1;
}

/* Any text. */
static __attribute__((noinline)) int read_rare_text(reader *r, int64_t column) {
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

MS_INLINE int read_text(reader *r, int64_t column) {
    ms_out *out = out_entry(&r->table, column);
    if (!out || r->s.at >= r->s.end || *r->s.at != '"') return 0;
    return MS_LIKELY(read_plain_text(&r->s, out)) || read_rare_text(r, column);
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

static int read_double(reader *r, int64_t column) {
    written_number number;
    double nearest;
    float narrow;
    int64_t bits = 0;
    if (!scan_number(&r->s, &number) || !is_end(&r->s)) return 0;
    if (r->fields[column].takes == MS_TAKES_FLOAT) {
        if (!to_float(&number, &narrow)) return 0;
        memcpy(&bits, &narrow, 4);
        return out_32(&r->table, column, (int32_t)bits);
    }
    if (!to_double(&number, &nearest)) return 0;
    memcpy(&bits, &nearest, 8);
    return out_64(&r->table, column, bits);
}

/* A number, or a text that is one. */
static int read_decimal(reader *r, int64_t column) {
    const ms_json_field *field = r->fields + column;
    scan *s = &r->s;
    written_number number;
    __int128 decimal;
    int is_text = s->at < s->end && *s->at == '"';
    s->at += is_text;
    if (!scan_number(s, &number)) return 0;
    if (is_text ? s->at >= s->end || *s->at++ != '"' : !is_end(s)) return 0;
    if (!to_decimal(&number, field->precision, field->scale, &decimal)) return 0;
    return out_128(&r->table, column, decimal);
}

static int read_boolean(reader *r, int64_t column) {
    int is_true = r->s.at < r->s.end && *r->s.at == 't';
    if (!skip_word(&r->s, is_true ? "true" : "false", is_true ? 4 : 5) || !is_end(&r->s)) return 0;
    return out_bit(&r->table, column, is_true);
}

static int read_time(reader *r, int64_t column) {
    const uint8_t *text;
    int64_t size, time;
    int is_local = r->fields[column].takes == MS_TAKES_LOCAL;
    if (!text_at(&r->s, &text, &size) || !time_at(&r->day, text, size, is_local, &time)) return 0;
    return out_64(&r->table, column, time);
}

static int read_date(reader *r, int64_t column) {
    const uint8_t *text;
    int64_t size, day;
    if (!text_at(&r->s, &text, &size) || size != DAY_SIZE || !day_at(&r->day, text, &day)) return 0;
    return out_32(&r->table, column, (int32_t)day);
}

/* What stands behind an item: 1 where another one follows, 0 at the end, -1 for anything else. */
MS_INLINE int after_item(scan *s, uint8_t close) {
    skip_space(s);
    if (s->at >= s->end) return -1;
    if (*s->at == close) {
        s->at++;
        return 0;
    }
    if (*s->at++ != ',') return -1;
    skip_space(s);
    return 1;
}

/* Goes over the opening bracket of items; 1 where some follow, 0 behind the end of none, -1 where
 * they are nested too deep. */
MS_INLINE int open_items(reader *r, uint8_t close) {
    scan *s = &r->s;
    if (r->deep >= MOST_DEEP) return -1;
    s->at++;
    skip_space(s);
    if (s->at >= s->end || *s->at != close) return 1;
    s->at++;
    return 0;
}

/* Goes over what stands between a name and its value. */
MS_INLINE int skip_colon(scan *s) {
    skip_space(s);
    if (s->at >= s->end || *s->at++ != ':') return 0;
    skip_space(s);
    return 1;
}

/* Goes over a value of any kind. */
static int skip_value(reader *r) {
    scan *s = &r->s;
    const uint8_t *text;
    int64_t size;
    int is_object, more;
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
    is_object = *s->at == '{';
    more = open_items(r, is_object ? '}' : ']');
    r->deep++;
    for (; more > 0; more = after_item(s, is_object ? '}' : ']')) {
        if (is_object && (!text_at(s, &text, &size) || !skip_colon(s))) return 0;
        if (!skip_value(r)) return 0;
    }
    r->deep--;
    return !more;
}

static int read_value(reader *r, int64_t column);

MS_INLINE name_text name_of_field(const void *fields, int64_t column) {
    const ms_json_field *field = (const ms_json_field *)fields + column;
    return (name_text){field->name, field->name_size};
}

/* Goes over the name of a field if it is written as it is, and not at the very end. */
MS_INLINE int skip_expected(reader *r, const ms_json_field *field) {
    scan *s = &r->s;
    const uint8_t *at = s->at;
    int64_t size = field->name_size;
    r->compared++;
    if (s->end - at < size + WIDE || at[0] != '"' || at[size + 1] != '"') return 0;
    if (!field->is_plain || !is_same_name(at + 1, field->name, size)) return 0;
    s->at = at + size + 2;
    return 1;
}

/* Goes over a name and tells its column: as a rule that of the field behind the last one. */
MS_INLINE int read_name(reader *r, const ms_json_field *object, int64_t expected,
                        int64_t *column) {
    name_text name;
    if (MS_LIKELY(object->inside && skip_expected(r, r->fields + expected))) {
        *column = expected;
        return 1;
    }
    if (!text_at(&r->s, &name.at, &name.size) || r->s.escapes) return 0;
    *column = find_name(object->sorted, object->inside, name_of_field, r->fields, name,
                        &r->compared);
    return 1;
}

/* The value of a field, mostly a text. */
MS_INLINE int read_field(reader *r, int64_t column) {
    if (r->fields[column].takes == MS_TAKES_TEXT && r->s.at < r->s.end && *r->s.at == '"')
        return read_text(r, column);
    return read_value(r, column);
}

/* The fields of an object, from the first to behind its end. They go to the columns from first to
 * stop, of which length entries each are written; so a field that was seen has one more. */
static int read_fields(reader *r, const ms_json_field *object, int64_t first, int64_t stop,
                       int64_t length, int64_t *seen) {
    scan *s = &r->s;
    int64_t expected = first;
    int more;
    do {
        int64_t column;
        if (!read_name(r, object, expected, &column) || !skip_colon(s)) return 0;
        if (column < 0) {
            if (!r->skip_unknown || !skip_value(r)) return 0;
        } else {
            if (r->table.columns[column].length != length || !read_field(r, column)) return 0;
            expected = r->table.columns[column].end;
            if (expected >= stop) expected = first;
            ++*seen;
        }
        more = after_item(s, '}');
    } while (more > 0);
    return !more;
}

static int read_object(reader *r, const ms_json_field *object, int64_t first, int64_t stop,
                       int64_t length) {
    int64_t seen = 0;
    int more;
    if (r->s.at >= r->s.end || *r->s.at != '{') return 0;
    more = open_items(r, '}');
    r->deep++;
    if (more < 0 || (more && !read_fields(r, object, first, stop, length, &seen))) return 0;
    for (int64_t i = first; seen < object->inside && i < stop; i = r->table.columns[i].end) {
        if (r->table.columns[i].length != length) continue;
        if (!out_null(&r->table, i)) return 0;
        seen++;
    }
    r->deep--;
    return 1;
}

static int read_list(reader *r, int64_t column) {
    int more;
    if (r->s.at >= r->s.end || *r->s.at != '[') return 0;
    more = open_items(r, ']');
    r->deep++;
    for (; more > 0; more = after_item(&r->s, ']'))
        if (!read_value(r, column + 1)) return 0;
    r->deep--;
    return !more && out_list(&r->table, column);
}

/* An object whose names are keys. Behind the map's column stand those of an entry, of its key and of
 * its value. */
static int read_map(reader *r, int64_t column) {
    const ms_out *keys = r->table.columns + column + 2;
    int64_t first = keys->length;
    int more;
    if (r->s.at >= r->s.end || *r->s.at != '{') return 0;
    more = open_items(r, '}');
    r->deep++;
    for (; more > 0; more = after_item(&r->s, '}')) {
        if (!out_struct(&r->table, column + 1) || !read_text(r, column + 2)) return 0;
        if (is_key_twice(keys, first)) return 0;
        if (!skip_colon(&r->s) || !read_value(r, column + 3)) return 0;
    }
    r->deep--;
    return !more && out_list(&r->table, column);
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
    case MS_TAKES_FLOAT:
    case MS_TAKES_DOUBLE:
        return read_double(r, column);
    case MS_TAKES_BOOLEAN:
        return read_boolean(r, column);
    case MS_TAKES_INSTANT:
    case MS_TAKES_LOCAL:
        return read_time(r, column);
    case MS_TAKES_DATE:
        return read_date(r, column);
    case MS_TAKES_DECIMAL:
        return read_decimal(r, column);
    case MS_TAKES_MAP:
        return read_map(r, column);
    case MS_TAKES_OBJECT:
        return read_object(r, r->fields + column, column + 1, out->end, out->length) &&
               out_struct(&r->table, column);
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
    if (!read_object(r, r->fields + r->count, 0, r->count, written)) return 0;
    skip_space(&r->s);
    return r->s.at == r->s.end;
}

int64_t ms_json_rows(const ms_json_field *fields, int64_t skip_unknown, const ms_binary_in *values,
                     int64_t first, int64_t rows, ms_out *columns, int64_t count,
                     int64_t *written, uint8_t *states, ms_fault *fault) {
    reader r = {.table = {.columns = columns, .full = -1}, .fields = fields, .count = count};
    r.skip_unknown = skip_unknown != 0;
    first = read_rows(read_row, &r, &r.table, count, values, first, rows, written, states, fault);
    if (fault->code == MS_OK) fault->position = r.compared;
    return first;
}
