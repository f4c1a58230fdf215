/* Avro datums into Arrow columns (Avro specification 1.12, binary encoding). */
#include "avro.h"

#include "rows_in.h"

int32_t ms_avro_abi(void) { return MS_AVRO_ABI; }

#define ONE_BYTE 64 /* smaller numbers take one byte */

typedef struct {
    out_table table;
    const ms_avro_step *steps;
    const uint8_t *end;
} reader;

/* NULL where the number has no end, or does not fit 64 bits. */
MS_INLINE const uint8_t *long_at(const uint8_t *at, const uint8_t *end, int64_t *number) {
    const uint8_t *after;
    if (MS_UNLIKELY(at >= end)) return NULL;
    after = read_i64(at, end, number);
    if (MS_UNLIKELY(after && after - at == 10 && at[9] > 1)) return NULL;
    return after;
}

/* The data behind a length. */
MS_INLINE const uint8_t *bytes_at(const uint8_t *at, const uint8_t *end, int64_t *size) {
    at = long_at(at, end, size);
    if (!at || *size < 0 || *size > end - at) return NULL;
    return at;
}

static const uint8_t *read_number(reader *r, const ms_avro_step *step, const uint8_t *at) {
    int64_t number;
    at = long_at(at, r->end, &number);
    if (!at || number < step->low || number > step->high) return NULL;
    if (step->column < 0) return at;
    if (step->kind == MS_AVRO_INT_32)
        return out_32(&r->table, step->column, (int32_t)(number * step->factor)) ? at : NULL;
    if (step->kind == MS_AVRO_INT_DOUBLE) {
        double wide = (double)number;
        memcpy(&number, &wide, 8);
        return out_64(&r->table, step->column, number) ? at : NULL;
    }
    return out_64(&r->table, step->column, number * step->factor) ? at : NULL;
}

static const uint8_t *read_float(reader *r, const ms_avro_step *step, const uint8_t *at) {
    int64_t size = step->kind == MS_AVRO_DOUBLE ? 8 : 4, bits = 0;
    if (r->end - at < size) return NULL;
    memcpy(&bits, at, (size_t)size);
    if (step->column < 0) return at + size;
    if (step->kind == MS_AVRO_FLOAT)
        return out_32(&r->table, step->column, (int32_t)bits) ? at + size : NULL;
    if (step->kind == MS_AVRO_FLOAT_DOUBLE) {
        float narrow;
        double wide;
        memcpy(&narrow, at, 4);
        wide = narrow;
        memcpy(&bits, &wide, 8);
    }
    return out_64(&r->table, step->column, bits) ? at + size : NULL;
}

/* A text as Python writes UUIDs; others of its forms are left to Python. */
static int is_uuid(const uint8_t *at, int64_t size) {
    if (size != 36) return 0;
    for (int i = 0; i < 36; i++) {
        uint8_t c = at[i];
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (c != '-') return 0;
        } else if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return 0;
        }
    }
    return 1;
}

static int put_decimal(reader *r, const ms_avro_step *step, const uint8_t *at, int64_t size) {
    unsigned __int128 bits, bound = 1;
    __int128 number;
    if (size < 1 || size > 16) return 0;
    bits = at[0] & 0x80 ? ~(unsigned __int128)0 : 0;
    for (int64_t i = 0; i < size; i++) bits = bits << 8 | at[i];
    number = (__int128)bits;
    for (int64_t i = 0; i < step->high; i++) bound *= 10;
    if ((number < 0 ? 0 - bits : bits) >= bound) return 0;
    return step->column < 0 || out_128(&r->table, step->column, number);
}

/* Everything that has a length before it or a size of its own. */
static const uint8_t *read_bytes(reader *r, const ms_avro_step *step, const uint8_t *at) {
    int64_t size = step->size;
    int done = 1;
    if (step->kind == MS_AVRO_FIXED || step->kind == MS_AVRO_FIXED_DECIMAL) {
        if (size > r->end - at) return NULL;
    } else if (!(at = bytes_at(at, r->end, &size))) {
        return NULL;
    }
    if (step->kind == MS_AVRO_DECIMAL || step->kind == MS_AVRO_FIXED_DECIMAL)
        return put_decimal(r, step, at, size) ? at + size : NULL;
    if (step->kind == MS_AVRO_UUID && !is_uuid(at, size)) return NULL;
    if (step->column < 0)
        done = step->kind != MS_AVRO_TEXT || is_utf8(at, at + size);
    else if (step->kind == MS_AVRO_TEXT)
        done = out_text(&r->table, step->column, at, size);
    else
        done = out_bytes(&r->table, step->column, at, size);
    return done ? at + size : NULL;
}

MS_INLINE const uint8_t *read_text(reader *r, const ms_avro_step *step, const uint8_t *at) {
    int64_t size;
    at = bytes_at(at, r->end, &size);
    return at && out_text(&r->table, step->column, at, size) ? at + size : NULL;
}

static const uint8_t *read_enum(reader *r, const ms_avro_step *step, const uint8_t *at) {
    int64_t symbol, start, size;
    at = long_at(at, r->end, &symbol);
    if (!at || symbol < 0 || symbol >= step->size) return NULL;
    start = step->offsets[2 * symbol];
    size = step->offsets[2 * symbol + 1] - start;
    if (size < 0) return NULL;
    if (step->column < 0) return at;
    return out_bytes(&r->table, step->column, step->text + start, size) ? at : NULL;
}

static const uint8_t *read_step(reader *r, const ms_avro_step *step, const uint8_t *at);

static const uint8_t *read_key(reader *r, int64_t column, int64_t first, const uint8_t *at) {
    int64_t size;
    at = bytes_at(at, r->end, &size);
    if (!at) return NULL;
    if (column < 0) return is_utf8(at, at + size) ? at + size : NULL;
    if (!out_struct(&r->table, column + 1)) return NULL;
    if (!out_text(&r->table, column + 2, at, size)) return NULL;
    return is_key_twice(r->table.columns + column + 2, first) ? NULL : at + size;
}

static const uint8_t *read_blocks(reader *r, const ms_avro_step *step, const uint8_t *at) {
    int is_map = step->kind == MS_AVRO_MAP;
    int64_t first = is_map && step->column >= 0 ? r->table.columns[step->column + 2].length : 0;
    for (;;) {
        int64_t count, size;
        at = long_at(at, r->end, &count);
        if (!at) return NULL;
        if (!count) break;
        if (count < 0) {
            if (!(at = long_at(at, r->end, &size)) || count == INT64_MIN) return NULL;
            count = -count;
        }
        if (count > r->end - at) return NULL;
        for (; count; count--) {
            if (is_map && !(at = read_key(r, step->column, first, at))) return NULL;
            if (!(at = read_step(r, step + 1, at))) return NULL;
        }
    }
    return step->column < 0 || out_list(&r->table, step->column) ? at : NULL;
}

static const uint8_t *read_union(reader *r, const ms_avro_step *step, const uint8_t *at) {
    int64_t branch;
    at = long_at(at, r->end, &branch);
    if (!at) return NULL;
    if (branch == step->low) return read_step(r, step + 1, at);
    if (branch < 0 || branch != step->high) return NULL;
    return step->column < 0 || out_null(&r->table, step->column) ? at : NULL;
}

static const uint8_t *read_record(reader *r, const ms_avro_step *step, const uint8_t *at) {
    const ms_avro_step *inside = step + 1, *end = step + step->end;
    while (inside < end) {
        const ms_avro_step *each = inside;
        inside += inside->end;
        /* Most fields are a union with null that holds something, and a branch is one byte. */
        if (each->kind == MS_AVRO_UNION && at < r->end && each->low < ONE_BYTE &&
            *at == each->low << 1) {
            at++;
            each++;
        }
        if (each->kind == MS_AVRO_TEXT && each->column >= 0)
            at = read_text(r, each, at);
        else
            at = read_step(r, each, at);
        if (!at) return NULL;
    }
    return step->column < 0 || out_struct(&r->table, step->column) ? at : NULL;
}

static const uint8_t *read_step(reader *r, const ms_avro_step *step, const uint8_t *at) {
    switch (step->kind) {
    case MS_AVRO_NULL:
        return at;
    case MS_AVRO_BOOLEAN:
        if (at >= r->end || *at > 1) return NULL;
        return step->column < 0 || out_bit(&r->table, step->column, *at) ? at + 1 : NULL;
    case MS_AVRO_INT_32:
    case MS_AVRO_INT_64:
    case MS_AVRO_INT_DOUBLE:
        return read_number(r, step, at);
    case MS_AVRO_FLOAT:
    case MS_AVRO_FLOAT_DOUBLE:
    case MS_AVRO_DOUBLE:
        return read_float(r, step, at);
    case MS_AVRO_ENUM:
        return read_enum(r, step, at);
    case MS_AVRO_ARRAY:
    case MS_AVRO_MAP:
        return read_blocks(r, step, at);
    case MS_AVRO_RECORD:
        return read_record(r, step, at);
    case MS_AVRO_UNION:
        return read_union(r, step, at);
    case MS_AVRO_ABSENT:
        return out_null(&r->table, step->column) ? at : NULL;
    default:
        return read_bytes(r, step, at);
    }
}

static int read_row(void *reader_, const uint8_t *data, int64_t length, int64_t written) {
    reader *r = reader_;
    const uint8_t *after;
    (void)written;
    if (length < 0) return 0;
    r->end = data + length;
    after = read_record(r, r->steps, data);
    return after && after == r->end;
}

int64_t ms_avro_rows(const ms_avro_step *steps, const ms_binary_in *values, int64_t first,
                     int64_t rows, ms_out *columns, int64_t count, int64_t *written,
                     uint8_t *states, ms_fault *fault) {
    reader r = {.table = {.columns = columns, .full = -1}, .steps = steps};
    return read_rows(read_row, &r, &r.table, count, values, first, rows, written, states, fault);
}
