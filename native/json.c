/* Values of records that are JSON objects, as lines for a reader of newline-delimited JSON, and what
 * some of their fields hold.
 *
 * A value that is not one whole object of the grammar of RFC 8259 would end the reading of all that
 * is read with it, or join the object after it. So each is checked here, byte by byte and once, and
 * whoever reads the lines may count on one row for each. */
#include "binary_in.h"
#include "json_scan.h"
#include "sorted_names.h"

#define MOST_DEEP 64

/* Where the text of a value is; start is NULL where there is none. */
typedef struct {
    const uint8_t *start;
    const uint8_t *end;
} span;

typedef struct {
    const ms_json_columns *columns;
    span *spans;   /* of each column, if they are asked for, or NULL */
    int64_t field; /* the column of the field that is being read, or -1 */
    int64_t next;  /* the column that the next field probably goes to */
    int64_t deepest;
    int64_t compared; /* names, to find columns */
} wanted_fields;

MS_INLINE name_text name_of_column(const void *columns_, int64_t column) {
    const ms_json_columns *columns = columns_;
    int64_t start = columns->offsets[column];
    return (name_text){columns->names + start, columns->offsets[column + 1] - start};
}

/* The column of a name, mostly the one behind the last; -1 where there is none. */
static int64_t column_of(wanted_fields *fields, const uint8_t *name, int64_t length) {
    const ms_json_columns *columns = fields->columns;
    name_text wanted = {name, length};
    if (fields->next >= columns->count) fields->next = 0;
    if (columns->count) {
        fields->compared++;
        if (!compare_names(wanted, name_of_column(columns, fields->next))) return fields->next;
    }
    return find_name(columns->sorted, columns->count, name_of_column, columns, wanted,
                     &fields->compared);
}

/* What the column of this name takes; everything where there is none. */
static int kinds_of(wanted_fields *fields, const uint8_t *name, int64_t length) {
    fields->field = column_of(fields, name, length);
    if (fields->field < 0) return 0xFF;
    fields->next = fields->field + 1;
    return fields->columns->kinds[fields->field];
}

/* Begins a field whose value is asked for. Returns 0 for a name that may be another one's too: with
 * an escape, or there before. */
static int begin_field(const wanted_fields *fields, const uint8_t *name, int64_t length) {
    if (memchr(name, '\\', (size_t)length)) return 0;
    return fields->field < 0 || !fields->spans[fields->field].start;
}

/* Whether the whole value is one object, and of the columns' kinds. */
static int check_value(scan *s, wanted_fields *fields) {
    uint64_t objects = 0; /* bit d: what is open at depth d + 1 is an object */
    int64_t depth = 0;
    int wanted = MS_JSON_OBJECT, other = 0, kind;
    const uint8_t *name;
    skip_space(s);
    if (s->at >= s->end || *s->at != '{') return MS_NO_OBJECT;
value:
    if (s->at >= s->end) return MS_NO_OBJECT;
    switch (*s->at) {
    case '{':
    case '[':
        kind = *s->at == '{' ? MS_JSON_OBJECT : MS_JSON_LIST;
        if (depth == 1 && !(wanted & kind)) other = 1;
        if (depth >= fields->deepest) return MS_NO_OBJECT;
        objects &= ~(1ull << depth);
        objects |= (uint64_t)(kind == MS_JSON_OBJECT) << depth;
        depth++;
        s->at++;
        skip_space(s);
        if (s->at >= s->end) return MS_NO_OBJECT;
        if (*s->at == (kind == MS_JSON_OBJECT ? '}' : ']')) goto close;
        if (kind == MS_JSON_OBJECT) goto key;
        goto value;
    case '"':
        s->at++;
        if (!skip_string(s)) return MS_NO_OBJECT;
        kind = MS_JSON_TEXT;
        break;
    case 't':
        if (!skip_word(s, "true", 4)) return MS_NO_OBJECT;
        kind = MS_JSON_BOOLEAN;
        break;
    case 'f':
        if (!skip_word(s, "false", 5)) return MS_NO_OBJECT;
        kind = MS_JSON_BOOLEAN;
        break;
    case 'n':
        if (!skip_word(s, "null", 4)) return MS_NO_OBJECT;
        kind = 0xFF;
        break;
    default:
        if (*s->at != '-' && (*s->at < '0' || *s->at > '9')) return MS_NO_OBJECT;
        if (!(kind = skip_number(s))) return MS_NO_OBJECT;
    }
    if (depth == 1 && !(wanted & kind)) other = 1;
after:
    if (depth == 1 && fields->spans && fields->field >= 0) fields->spans[fields->field].end = s->at;
    skip_space(s);
    if (s->at >= s->end) return MS_NO_OBJECT;
    if (*s->at == ',') {
        s->at++;
        skip_space(s);
        if (objects >> (depth - 1) & 1) goto key;
        goto value;
    }
    if (*s->at != (objects >> (depth - 1) & 1 ? '}' : ']')) return MS_NO_OBJECT;
close:
    s->at++;
    if (--depth) goto after;
    skip_space(s);
    if (s->at < s->end) return MS_NO_OBJECT;
    return other ? MS_OTHER_KIND : MS_LINE;
key:
    if (s->at >= s->end || *s->at != '"') return MS_NO_OBJECT;
    name = ++s->at;
    if (!skip_string(s)) return MS_NO_OBJECT;
    if (depth == 1) {
        wanted = kinds_of(fields, name, s->at - 1 - name);
        if (fields->spans && !begin_field(fields, name, s->at - 1 - name)) other = 1;
    }
    skip_space(s);
    if (s->at >= s->end || *s->at != ':') return MS_NO_OBJECT;
    s->at++;
    skip_space(s);
    if (depth == 1 && fields->spans && fields->field >= 0)
        fields->spans[fields->field].start = s->at;
    goto value;
}

int64_t ms_json_lines(const ms_binary_in *values, int64_t rows, const ms_json_columns *columns,
                      int64_t most_deep, uint8_t *out, int64_t capacity, int64_t *starts,
                      uint8_t *states, ms_fault *fault) {
    int64_t written = 0;
    wanted_fields fields = {.columns = columns};
    fields.deepest = most_deep < MOST_DEEP ? most_deep : MOST_DEEP;
    fault->code = MS_OK;
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *data;
        int64_t length;
        int state = MS_LINE;
        scan s;
        starts[row] = written;
        if (MS_UNLIKELY(!cell_at(values, row, &data, &length))) {
            fault->code = MS_COLUMN;
            fault->index = row;
            return -1;
        }
        if (length < 0) {
            data = (const uint8_t *)"{}";
            length = 2;
        } else {
            s = (scan){.at = data, .end = data + length};
            fields.next = 0;
            state = check_value(&s, &fields);
            if (state != MS_NO_OBJECT && s.high && !is_utf8(data, data + length))
                state = MS_NO_OBJECT;
        }
        states[row] = (uint8_t)state;
        if (state != MS_LINE) continue;
        if (capacity - written < length + 1) {
            fault->code = MS_CAPACITY;
            fault->index = row;
            return -1;
        }
        memcpy(out + written, data, (size_t)length);
        if (length > 2 && s.breaks)
            for (int64_t i = written; i < written + length; i++)
                if (out[i] == '\n' || out[i] == '\r') out[i] = ' ';
        written += length;
        out[written++] = '\n';
    }
    starts[rows] = written;
    fault->position = fields.compared;
    return written;
}

int64_t ms_json_fields(const ms_binary_in *values, int64_t rows, const ms_json_columns *columns,
                       uint8_t *out, int64_t capacity, int32_t *offsets, uint8_t *present,
                       uint8_t *states, ms_fault *fault) {
    span spans[MS_JSON_MOST_FIELDS];
    int32_t written[MS_JSON_MOST_FIELDS] = {0};
    int64_t count = columns->count;
    wanted_fields fields = {.columns = columns, .spans = spans, .deepest = MOST_DEEP};
    fault->code = MS_OK;
    if (count > MS_JSON_MOST_FIELDS) {
        fault->code = MS_CAPACITY;
        return -1;
    }
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *data;
        int64_t length;
        int state = MS_NO_OBJECT;
        if (MS_UNLIKELY(!cell_at(values, row, &data, &length))) {
            fault->code = MS_COLUMN;
            fault->index = row;
            return -1;
        }
        memset(spans, 0, sizeof spans);
        if (length >= 0) {
            scan s = {.at = data, .end = data + length};
            fields.field = -1;
            state = check_value(&s, &fields);
            if (state != MS_NO_OBJECT && s.high && !is_utf8(data, data + length))
                state = MS_NO_OBJECT;
        }
        states[row] = (uint8_t)state;
        for (int64_t i = 0; i < count; i++) {
            int64_t size = 0;
            offsets[i * (rows + 1) + row] = written[i];
            present[i * rows + row] = state == MS_LINE && spans[i].start;
            if (!present[i * rows + row]) continue;
            size = spans[i].end - spans[i].start;
            if (MS_UNLIKELY(capacity - written[i] < size || INT32_MAX - written[i] < size)) {
                fault->code = MS_CAPACITY;
                fault->index = row;
                return -1;
            }
            memcpy(out + i * capacity + written[i], spans[i].start, (size_t)size);
            written[i] += (int32_t)size;
        }
    }
    for (int64_t i = 0; i < count; i++) offsets[i * (rows + 1) + rows] = written[i];
    return rows;
}
