/* Bytes to objects. See codec.h. */
#include "codec_parts.h"

typedef struct {
    const uint8_t *data;
    const uint8_t *at;
    const uint8_t *end;
    int64_t left; /* array elements and tagged fields that there may yet be */
    void *owner;
} reader;

static void *read_struct(reader *from, const ms_struct *body);

/* An unsigned varint of up to 32 bits; 0 where there is none. */
MS_INLINE int read_uvarint(reader *from, int64_t *number) {
    uint64_t value = 0;
    if (MS_LIKELY(from->at < from->end) && *from->at < 0x80) {
        *number = *from->at++;
        return 1;
    }
    for (int shift = 0; shift < 35 && from->at < from->end; shift += 7) {
        uint64_t byte = *from->at++;
        if (shift == 28 && byte > 0x0F) return 0;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)value;
            return 1;
        }
    }
    return 0;
}

MS_INLINE int has(const reader *from, int64_t size) { return from->end - from->at >= size; }

/* The length in front of a value, negative for null; 0 where there is none. */
MS_INLINE int read_length(reader *from, int flexible, int wide, int64_t *length) {
    if (flexible) {
        if (!read_uvarint(from, length)) return 0;
        --*length;
    } else if (wide) {
        if (!has(from, 4)) return 0;
        *length = (int32_t)get_u32(from->at);
        from->at += 4;
    } else {
        if (!has(from, 2)) return 0;
        *length = (int16_t)(from->at[0] << 8 | from->at[1]);
        from->at += 2;
    }
    return 1;
}

static void *read_number(reader *from, int kind) {
    static const int8_t widths[] = {1, 1, 2, 4, 8, 2, 4, 8, 16};
    const uint8_t *at = from->at;
    if (MS_UNLIKELY(!has(from, widths[kind]))) return (void *)0;
    from->at += widths[kind];
    switch (kind) {
    case MS_BOOL: return shared(*at ? py.yes : py.no);
    case MS_INT8: return py.new_int((int8_t)*at);
    case MS_INT16: return py.new_int((int16_t)(at[0] << 8 | at[1]));
    case MS_INT32: return py.new_int((int32_t)get_u32(at));
    case MS_INT64: return py.new_int((int64_t)get_u64(at));
    case MS_UINT16: return py.new_int(at[0] << 8 | at[1]);
    case MS_UINT32: return py.new_int(get_u32(at));
    case MS_UUID: return py.new_bytes((const char *)at, 16);
    default: {
        uint64_t bits = get_u64(at);
        double number;
        __builtin_memcpy(&number, &bits, 8);
        return py.new_float(number);
    }
    }
}

/* The part of the owner that is length bytes long, as a view. */
static void *read_view(reader *from, int64_t length) {
    int64_t first = from->at - from->data;
    int is_view = type_of(from->owner) == py.view_type;
    void *whole = is_view ? shared(from->owner) : py.new_view(from->owner);
    void *start = py.new_int(first), *stop = py.new_int(first + length);
    void *slice = start && stop ? py.new_slice(start, stop, py.none) : (void *)0;
    void *part = whole && slice ? py.item(whole, slice) : (void *)0;
    if (whole) py.drop(whole);
    if (start) py.drop(start);
    if (stop) py.drop(stop);
    if (slice) py.drop(slice);
    return part;
}

static void *read_text(reader *from, const ms_field *field, int flexible) {
    int64_t length;
    if (!read_length(from, flexible, field->kind != MS_STRING, &length)) return (void *)0;
    if (length < 0) return field->nullable ? shared(py.none) : (void *)0;
    if (MS_UNLIKELY(!has(from, length))) return (void *)0;
    const char *data = (const char *)from->at;
    void *made;
    if (field->kind == MS_STRING)
        made = length > MAX_STRING_BYTES ? (void *)0 : py.new_text(data, length, (void *)0);
    else if (field->kind == MS_BYTES)
        made = py.new_bytes(data, length);
    else
        made = read_view(from, length);
    from->at += length;
    return made;
}

static void *read_value(reader *from, const ms_field *field, int flexible);

static void *read_array(reader *from, const ms_field *field, int flexible) {
    int64_t count;
    if (!read_length(from, flexible, 1, &count)) return (void *)0;
    if (count < 0) return field->nullable ? shared(py.none) : (void *)0;
    from->left -= count;
    if (from->left < 0 || !has(from, count * field->smallest)) return (void *)0;
    void *list = py.new_list(count);
    if (!list) return list;
    for (int64_t i = 0; i < count; i++) {
        void *each = field->element ? read_value(from, field->element, flexible)
                                    : read_struct(from, field->structure);
        if (MS_UNLIKELY(!each || py.set_in_list(list, i, each))) {
            py.drop(list);
            return (void *)0;
        }
    }
    return list;
}

static void *read_nullable_struct(reader *from, const ms_field *field) {
    if (!has(from, 1)) return (void *)0;
    int8_t mark = (int8_t)*from->at++;
    /* In front of a tagged struct Kafka writes a varint, 0 for null and 1 for a struct. */
    if (field->tag < 0 ? mark < 0 : !mark) return shared(py.none);
    return read_struct(from, field->structure);
}

static void *read_value(reader *from, const ms_field *field, int flexible) {
    if (field->kind <= MS_UUID) return read_number(from, field->kind);
    if (field->kind == MS_ARRAY) return read_array(from, field, flexible);
    if (field->kind != MS_STRUCT) return read_text(from, field, flexible);
    return field->nullable ? read_nullable_struct(from, field)
                           : read_struct(from, field->structure);
}

/* Tag and size of a tagged field, and where it ends. */
MS_INLINE int read_tag(reader *from, int64_t *tag, const uint8_t **end) {
    int64_t size;
    if (!read_uvarint(from, tag) || !read_uvarint(from, &size) || !has(from, size)) return 0;
    *end = from->at + size;
    return 1;
}

static int read_tags(reader *from, const ms_struct *body, void *into) {
    int64_t count, tag;
    const uint8_t *end;
    if (!read_uvarint(from, &count)) return 0;
    if (MS_LIKELY(!count)) return 1;
    from->left -= count;
    if (from->left < 0) return 0;
    for (; count; count--) {
        if (!read_tag(from, &tag, &end)) return 0;
        for (int32_t i = 0; i < body->tagged_count; i++) {
            const ms_field *field = body->tagged + i;
            if (field->tag != tag) continue;
            void *value = read_value(from, field, 1), **slot = slot_of(into, field), *before = *slot;
            if (!value) return 0;
            *slot = value;
            py.drop(before);
            if (from->at != end) return 0;
        }
        from->at = end;
    }
    return 1;
}

static int fill(reader *from, const ms_struct *body, void *made) {
    for (int32_t i = 0; i < body->other_count; i++) {
        const ms_field *field = body->others + i;
        void *value = field->default_value ? shared(field->default_value) : py.new_list(0);
        if (!(*slot_of(made, field) = value)) return 0;
    }
    for (int32_t i = 0; i < body->field_count; i++) {
        const ms_field *field = body->fields + i;
        void *value = read_value(from, field, body->flexible);
        if (MS_UNLIKELY(!value)) return 0;
        *slot_of(made, field) = value;
    }
    return !body->flexible || read_tags(from, body, made);
}

static void *read_struct(reader *from, const ms_struct *body) {
    void *made = py.new_instance(body->type, 0);
    if (!made || MS_LIKELY(fill(from, body, made))) return made;
    py.drop(made);
    return (void *)0;
}

void *ms_decode_message(const ms_struct *body, void *owner, const uint8_t *data, int64_t size,
                        int64_t *position, int64_t max_elements) {
    if (*position < 0 || *position > size) return (void *)0;
    reader from = {data, data + *position, data + size, max_elements, owner};
    void *made = read_struct(&from, body);
    *position = from.at - data;
    return made;
}

int ms_skip_tags(const uint8_t *data, int64_t size, int64_t *position, int64_t max_elements) {
    reader from = {data, data + *position, data + size, max_elements, (void *)0};
    int64_t count, tag;
    const uint8_t *end;
    if (!read_uvarint(&from, &count) || count > max_elements) return 0;
    for (; count; count--) {
        if (!read_tag(&from, &tag, &end)) return 0;
        from.at = end;
    }
    *position = from.at - data;
    return 1;
}
