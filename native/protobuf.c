/* Protobuf messages into Arrow columns (Protocol Buffers, encoding).
 *
 * The fields of a message come in any order, the entries of columns do not. So a message is gone
 * through twice: what is there is noted for each field, then the columns are written one by one. */
#include "protobuf.h"

#include "rows_in.h"

#include <stdlib.h>

#define LAST_VARINT_BYTE 9
#define LONGEST_TAG 5
#define LONGEST_VARINT 10
#define WALKS_PER_BYTE 4
#define FIRST_SECOND (-62135596800)
#define LAST_SECOND 253402300799

enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };

static const uint8_t WIRE_TYPES[] = {
    VARINT,     VARINT,      VARINT,      VARINT,     VARINT,      VARINT,
    VARINT,     VARINT,      FOUR_BYTES,  FOUR_BYTES, EIGHT_BYTES, EIGHT_BYTES,
    FOUR_BYTES, EIGHT_BYTES, LENGTH,      LENGTH,     LENGTH,      LENGTH,
};

int32_t ms_protobuf_abi(void) { return MS_PROTOBUF_ABI; }

typedef struct {
    const uint8_t *data; /* behind a length */
    uint64_t value;      /* the number, or the length */
    uint32_t number;
    uint32_t wire;
} field;

/* What is noted of one field of the message that is read. */
typedef struct {
    field once;
    const uint8_t *first; /* of a repeated field: where it stands first */
    int64_t count;
    int is_taken; /* of a oneof's first member: whether a member is there */
} slot;

typedef struct {
    out_table table;
    const ms_protobuf_step *steps;
    slot *slots; /* one for each step: a message is read to its end before its like is begun */
    int64_t walks; /* fields that may yet be passed on the way from one item to the next */
} reader;

MS_INLINE const uint8_t *varint_at(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    const uint8_t *after;
    if (MS_UNLIKELY(at >= end)) return NULL;
    if (*at < 0x80) {
        *value = *at;
        return at + 1;
    }
    after = read_long(at, end, LONGEST_VARINT, value);
    if (MS_UNLIKELY(after && after - at > LAST_VARINT_BYTE && at[LAST_VARINT_BYTE] > 1)) return NULL;
    return after;
}

/* A number that is not written longer than it has to be, of a tag or a length. */
MS_INLINE const uint8_t *short_at(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    const uint8_t *after;
    if (MS_UNLIKELY(at >= end)) return NULL;
    if (*at < 0x80) {
        *value = *at;
        return at + 1;
    }
    after = read_long(at, end, LONGEST_TAG, value);
    return after && after[-1] && *value <= UINT32_MAX ? after : NULL;
}

MS_INLINE const uint8_t *payload_at(const uint8_t *at, const uint8_t *end, field *found) {
    int64_t size;
    switch (found->wire) {
    case VARINT:
        return varint_at(at, end, &found->value);
    case EIGHT_BYTES:
    case FOUR_BYTES:
        size = found->wire == EIGHT_BYTES ? 8 : 4;
        if (end - at < size) return NULL;
        found->value = 0;
        memcpy(&found->value, at, (size_t)size);
        return at + size;
    case LENGTH:
        at = short_at(at, end, &found->value);
        if (!at || found->value > (uint64_t)(end - at)) return NULL;
        found->data = at;
        return at + found->value;
    default:
        return NULL;
    }
}

MS_INLINE const uint8_t *next_field(const uint8_t *at, const uint8_t *end, field *found) {
    uint64_t tag;
    at = short_at(at, end, &tag);
    if (!at || tag < 8) return NULL;
    found->number = (uint32_t)(tag >> 3);
    found->wire = (uint32_t)(tag & 7);
    return payload_at(at, end, found);
}

static int64_t integer_of(int32_t kind, uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    switch (kind) {
    case MS_PROTOBUF_INT32:
    case MS_PROTOBUF_SFIXED32:
        return (int32_t)low;
    case MS_PROTOBUF_UINT32:
    case MS_PROTOBUF_FIXED32:
        return low;
    case MS_PROTOBUF_SINT32:
        return (int32_t)(low >> 1 ^ -(low & 1));
    case MS_PROTOBUF_SINT64:
        return (int64_t)(bits >> 1 ^ -(bits & 1));
    default:
        return (int64_t)bits;
    }
}

static int put_integer(reader *r, const ms_protobuf_step *step, int64_t column, uint64_t bits) {
    int64_t number = integer_of(step->kind, bits);
    double wide = (double)number;
    if (number < step->low || number > step->high) return 0;
    if (step->into == MS_INTO_32) return out_32(&r->table, column, (int32_t)number);
    if (step->into == MS_INTO_DOUBLE) memcpy(&number, &wide, 8);
    return out_64(&r->table, column, number);
}

static int put_fraction(reader *r, const ms_protobuf_step *step, int64_t column, uint64_t bits) {
    if (step->into == MS_INTO_32) return out_32(&r->table, column, (int32_t)bits);
    if (step->kind == MS_PROTOBUF_FLOAT) {
        float narrow;
        double wide;
        memcpy(&narrow, &bits, 4);
        wide = narrow;
        memcpy(&bits, &wide, 8);
    }
    return out_64(&r->table, column, (int64_t)bits);
}

static int put_symbol(reader *r, const ms_protobuf_step *step, int64_t column, uint64_t bits) {
    int64_t number = (int64_t)bits, low = 0, high = step->size - 1, found = -1;
    if (number < INT32_MIN || number > INT32_MAX) return 0;
    if (number >= 0 && number < step->size && step->numbers[number] == number) found = number;
    while (found < 0 && low <= high) {
        int64_t middle = (low + high) / 2;
        if (step->numbers[middle] == number)
            found = middle;
        else if (step->numbers[middle] < number)
            low = middle + 1;
        else
            high = middle - 1;
    }
    if (found < 0) return 0;
    return out_bytes(&r->table, column, step->text + step->offsets[found],
                     step->offsets[found + 1] - step->offsets[found]);
}

static int put_number(reader *r, const ms_protobuf_step *step, int64_t column, uint64_t bits) {
    if (column < 0) return 1;
    switch (step->kind) {
    case MS_PROTOBUF_BOOL:
        return out_bit(&r->table, column, bits != 0);
    case MS_PROTOBUF_ENUM:
        return put_symbol(r, step, column, bits);
    case MS_PROTOBUF_UINT64:
    case MS_PROTOBUF_FIXED64:
        return out_128(&r->table, column, (__int128)(unsigned __int128)bits);
    case MS_PROTOBUF_FLOAT:
    case MS_PROTOBUF_DOUBLE:
        return put_fraction(r, step, column, bits);
    default:
        return put_integer(r, step, column, bits);
    }
}

static int put_timestamp(reader *r, int64_t column, const uint8_t *at, const uint8_t *end) {
    int64_t parts[2] = {0, 0};
    int is_there[2] = {0, 0};
    while (at < end) {
        field found;
        at = next_field(at, end, &found);
        if (!at) return 0;
        if (found.number > 2) continue;
        if (found.wire != VARINT || is_there[found.number - 1]++) return 0;
        parts[found.number - 1] = (int64_t)found.value;
    }
    if (parts[0] < FIRST_SECOND || parts[0] > LAST_SECOND) return 0;
    if (parts[1] < 0 || parts[1] > 999999999) return 0;
    return column < 0 || out_64(&r->table, column, parts[0] * 1000000 + parts[1] / 1000);
}

static int put_message(reader *r, const ms_protobuf_step *step, int64_t column, const uint8_t *at,
                       const uint8_t *end);

static int put_value(reader *r, const ms_protobuf_step *step, int64_t column, const field *found) {
    int64_t size = (int64_t)found->value;
    switch (step->kind) {
    case MS_PROTOBUF_MESSAGE:
        return put_message(r, step, column, found->data, found->data + size);
    case MS_PROTOBUF_TIMESTAMP:
        return put_timestamp(r, column, found->data, found->data + size);
    case MS_PROTOBUF_TEXT:
        if (column < 0) return is_utf8(found->data, found->data + size);
        return out_text(&r->table, column, found->data, size);
    case MS_PROTOBUF_BYTES:
        return column < 0 || out_bytes(&r->table, column, found->data, size);
    default:
        return put_number(r, step, column, found->value);
    }
}

static int put_absent(reader *r, const ms_protobuf_step *step) {
    static const uint8_t nothing = 0;
    field zero = {.data = &nothing};
    if (step->absent == MS_ABSENT_UNCERTAIN) return 0;
    if (step->column < 0) return 1;
    if (step->absent == MS_ABSENT_NULL) return out_null(&r->table, step->column);
    return put_value(r, step, step->column, &zero);
}

/* Many numbers in one field. */
static int put_packed(reader *r, const ms_protobuf_step *step, int64_t column, const field *all) {
    const uint8_t *at = all->data, *end = at + all->value;
    field one = {.wire = WIRE_TYPES[step->kind]};
    while (at < end) {
        at = payload_at(at, end, &one);
        if (!at || !put_number(r, step, column, one.value)) return 0;
    }
    return 1;
}

/* The entries of a repeated field, from where it stands first on. */
static int put_items(reader *r, const ms_protobuf_step *step, const slot *noted,
                     const uint8_t *end) {
    int64_t items = step->column < 0 ? -1 : step->column + 1;
    int is_map = step->often == MS_MAP && items >= 0;
    int64_t first_key = is_map ? r->table.columns[items + 1].length : 0;
    const uint8_t *at = noted->first;
    for (int64_t left = noted->count; left;) {
        field found = {0};
        at = next_field(at, end, &found);
        /* Items of many fields, each far from the next one, would be looked for again and again. */
        if (!at || !r->walks--) return 0;
        if (found.number != (uint32_t)step->number) continue;
        left--;
        if (found.wire == WIRE_TYPES[step->kind]) {
            if (!put_value(r, step, items, &found)) return 0;
        } else if (!put_packed(r, step, items, &found)) {
            return 0;
        }
        if (is_map && is_key_twice(r->table.columns + items + 1, first_key)) return 0;
    }
    return items < 0 || out_list(&r->table, step->column);
}

/* The place of a field among those of a message, -1 where it has none: mostly the expected one, or
 * the one after it. */
MS_INLINE int32_t place_of(const ms_protobuf_step *fields, int32_t count, int32_t expected,
                           uint32_t number) {
    int32_t low = 0, high = count - 1;
    for (int32_t i = expected; i < count && i < expected + 2; i++)
        if ((uint32_t)fields[i].number == number) return i;
    while (low <= high) {
        int32_t middle = (low + high) / 2;
        if ((uint32_t)fields[middle].number == number) return middle;
        if ((uint32_t)fields[middle].number < number)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

/* Notes one field of a message; 0 where what it means is not certain. */
MS_INLINE int note(const ms_protobuf_step *step, slot *noted, slot *slots, const field *found,
                   const uint8_t *start) {
    uint32_t wire = WIRE_TYPES[step->kind];
    if (step->often != MS_ONCE) {
        if (found->wire != wire && found->wire != LENGTH) return 0;
        if (!noted->count++) noted->first = start;
        return 1;
    }
    if (found->wire != wire || noted->count++) return 0;
    noted->once = *found;
    return step->oneof < 0 || !slots[step->oneof].is_taken++;
}

static int put_message(reader *r, const ms_protobuf_step *step, int64_t column, const uint8_t *at,
                       const uint8_t *end) {
    const ms_protobuf_step *fields = r->steps + step->first;
    slot *slots = r->slots + step->first;
    const uint8_t *start = at;
    int32_t place = 0;
    for (int32_t i = 0; i < step->count; i++) slots[i].count = slots[i].is_taken = 0;
    while (at < end) {
        int32_t found_at;
        field found;
        start = at;
        at = next_field(at, end, &found);
        if (MS_UNLIKELY(!at)) return 0;
        found_at = place_of(fields, step->count, place, found.number);
        if (found_at < 0) {
            /* An entry of a map with further fields is taken for one that is not known. */
            if (step->often == MS_MAP) return 0;
            continue;
        }
        place = found_at;
        if (!note(fields + place, slots + place, slots, &found, start)) return 0;
    }
    for (int32_t i = 0; i < step->count; i++) {
        const ms_protobuf_step *each = fields + i;
        int done;
        if (each->often != MS_ONCE)
            done = put_items(r, each, slots + i, end);
        else if (slots[i].count)
            done = put_value(r, each, each->column, &slots[i].once);
        else
            done = put_absent(r, each);
        if (!done) return 0;
    }
    return column < 0 || out_struct(&r->table, column);
}

static int read_row(void *reader_, const uint8_t *data, int64_t length, int64_t written) {
    reader *r = reader_;
    (void)written;
    r->walks = WALKS_PER_BYTE * length;
    return length >= 0 && r->slots && put_message(r, r->steps, -1, data, data + length);
}

int64_t ms_protobuf_rows(const ms_protobuf_step *steps, int64_t step_count,
                         const ms_binary_in *values, int64_t first, int64_t rows, ms_out *columns,
                         int64_t count, int64_t *written, uint8_t *states, ms_fault *fault) {
    reader r = {.table = {.columns = columns, .full = -1}, .steps = steps};
    r.slots = calloc((size_t)step_count, sizeof(slot));
    first = read_rows(read_row, &r, &r.table, count, values, first, rows, written, states, fault);
    free(r.slots);
    return first;
}
