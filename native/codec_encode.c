/* Objects to bytes. See codec.h. */
#include <stdlib.h>

#include "codec_parts.h"

void ms_begin_writing(codec_writer *writer, int64_t merge_below) {
    writer->pieces = (void *)0;
    writer->data = writer->first;
    writer->size = writer->sent = 0;
    writer->capacity = FIRST_BYTES;
    writer->merge_below = merge_below;
}

void ms_end_writing(codec_writer *writer) {
    if (writer->data != writer->first) free(writer->data);
    if (writer->pieces) py.drop(writer->pieces);
}

static int grow(codec_writer *to, int64_t size) {
    int64_t capacity = to->capacity;
    while (capacity - to->size < size) capacity *= 2;
    uint8_t *data = to->data == to->first ? malloc((size_t)capacity)
                                          : realloc(to->data, (size_t)capacity);
    if (!data) return 0;
    if (to->data == to->first) __builtin_memcpy(data, to->first, (size_t)to->size);
    to->data = data;
    to->capacity = capacity;
    return 1;
}

/* Room for some bytes more; NULL where there is no memory. */
MS_INLINE uint8_t *extend(codec_writer *to, int64_t size) {
    if (MS_UNLIKELY(to->capacity - to->size < size) && !grow(to, size)) return (uint8_t *)0;
    to->size += size;
    return to->data + to->size - size;
}

int ms_write(codec_writer *to, const void *data, int64_t size) {
    uint8_t *at = extend(to, size);
    if (at) __builtin_memcpy(at, data, (size_t)size);
    return at != (uint8_t *)0;
}

MS_INLINE int write_byte(codec_writer *to, uint8_t byte) {
    uint8_t *at = extend(to, 1);
    if (at) *at = byte;
    return at != (uint8_t *)0;
}

MS_INLINE int put_uvarint(uint8_t *at, uint64_t number) {
    int size = 0;
    for (; number > 0x7F; number >>= 7) at[size++] = (uint8_t)(number | 0x80);
    at[size++] = (uint8_t)number;
    return size;
}

static int write_uvarint(codec_writer *to, uint64_t number) {
    uint8_t digits[5];
    return ms_write(to, digits, put_uvarint(digits, number));
}

/* The length in front of a value, -1 for null. */
static int write_length(codec_writer *to, int flexible, int wide, int64_t length) {
    uint8_t *at;
    if (length > (wide ? INT32_MAX : MAX_STRING_BYTES)) return 0;
    if (flexible)
        return MS_LIKELY(length < 127) ? write_byte(to, (uint8_t)(length + 1))
                                       : write_uvarint(to, (uint64_t)length + 1);
    if (!(at = extend(to, wide ? 4 : 2))) return 0;
    if (wide)
        put_u32(at, (uint32_t)length);
    else
        put_u16(at, (uint16_t)length);
    return 1;
}

static int is_in_range(int kind, int64_t number) {
    switch (kind) {
    case MS_INT8: return number == (int8_t)number;
    case MS_INT16: return number == (int16_t)number;
    case MS_INT32: return number == (int32_t)number;
    case MS_UINT16: return number == (uint16_t)number;
    case MS_UINT32: return number == (uint32_t)number;
    default: return 1;
    }
}

static int write_int(codec_writer *to, int kind, void *value) {
    static const int8_t widths[] = {1, 1, 2, 4, 8, 2, 4};
    int overflow;
    int64_t number = py.as_int(value, &overflow);
    if (MS_UNLIKELY(number == -1) && (overflow || py.error())) return 0;
    if (!is_in_range(kind, number)) return 0;
    uint8_t *at = extend(to, widths[kind]);
    if (!at) return 0;
    switch (widths[kind]) {
    case 1: *at = (uint8_t)number; break;
    case 2: put_u16(at, (uint16_t)number); break;
    case 4: put_u32(at, (uint32_t)number); break;
    default: put_u64(at, (uint64_t)number);
    }
    return 1;
}

static int write_float(codec_writer *to, void *value) {
    double number = py.as_float(value);
    uint64_t bits;
    if (number == -1.0 && py.error()) return 0;
    __builtin_memcpy(&bits, &number, 8);
    uint8_t *at = extend(to, 8);
    if (at) put_u64(at, bits);
    return at != (uint8_t *)0;
}

static int write_bool(codec_writer *to, void *value) {
    int truth = value == py.yes ? 1 : value == py.no ? 0 : py.is_true(value);
    return truth >= 0 && write_byte(to, (uint8_t)truth);
}

static int write_uuid(codec_writer *to, void *value) {
    if (type_of(value) != py.bytes_type || py.size(value) != 16) return 0;
    return ms_write(to, py.as_bytes(value), 16);
}

static int write_number(codec_writer *to, int kind, void *value) {
    switch (kind) {
    case MS_BOOL: return write_bool(to, value);
    case MS_FLOAT64: return write_float(to, value);
    case MS_UUID: return write_uuid(to, value);
    default: return write_int(to, kind, value);
    }
}

static int write_text(codec_writer *to, void *value, int flexible) {
    intptr_t size;
    if (type_of(value) != py.text_type) return 0;
    const char *data = py.as_text(value, &size);
    return data && write_length(to, flexible, 0, size) && ms_write(to, data, size);
}

int ms_write_string(codec_writer *writer, void *text) {
    return text == py.none ? write_length(writer, 0, 0, -1) : write_text(writer, text, 0);
}

/* The bytes of any buffer whose items are bytes; with a length in front. */
static int write_buffer(codec_writer *to, void *value, int flexible) {
    py_buffer view;
    int done = 0;
    if (type_of(value) == py.bytes_type) {
        intptr_t size = py.size(value);
        return write_length(to, flexible, 1, size) && ms_write(to, py.as_bytes(value), size);
    }
    if (py.get_buffer(value, &view, 0)) return 0;
    if (py.size(value) == view.len)
        done = write_length(to, flexible, 1, view.len) && ms_write(to, view.buf, view.len);
    py.release_buffer(&view);
    return done;
}

/* Puts the bytes so far and what follows them behind the pieces that there are. */
static int write_piece(codec_writer *to, void *piece, int64_t size) {
    if (!to->pieces && !(to->pieces = py.new_list(0))) return 0;
    void *head = py.new_bytes((const char *)to->data, to->size);
    if (!head) return 0;
    int failed = py.append(to->pieces, head) || py.append(to->pieces, piece);
    py.drop(head);
    to->sent += to->size + size;
    to->size = 0;
    return !failed;
}

static int write_records(codec_writer *to, void *value, int flexible) {
    if (value == py.none) return write_length(to, flexible, 1, -1);
    intptr_t size = py.size(value);
    if (size < 0) return 0;
    void *type = type_of(value);
    int in_memory = type == py.bytes_type || type == py.view_type || type == py.bytearray_type;
    if (!size) return write_length(to, flexible, 1, 0);
    if (size < to->merge_below && in_memory) return write_buffer(to, value, flexible);
    return write_length(to, flexible, 1, size) && write_piece(to, value, size);
}

static int write_value(codec_writer *to, const ms_field *field, void *value, int flexible);

static int write_items(codec_writer *to, const ms_field *field, void *items, int64_t count,
                       int flexible) {
    void *(*item)(void *, intptr_t) = type_of(items) == py.list_type ? py.list_item : py.tuple_item;
    for (int64_t i = 0; i < count; i++) {
        void *each = item(items, i);
        if (!each) return 0;
        py.keep(each);
        int done = field->element ? write_value(to, field->element, each, flexible)
                                  : ms_write_struct(to, field->structure, each);
        py.drop(each);
        if (MS_UNLIKELY(!done)) return 0;
    }
    return 1;
}

static int write_array(codec_writer *to, const ms_field *field, void *items, int flexible) {
    if (type_of(items) != py.list_type && type_of(items) != py.tuple_type) return 0;
    int64_t count = py.size(items);
    return write_length(to, flexible, 1, count) && write_items(to, field, items, count, flexible);
}

static int write_nested(codec_writer *to, const ms_field *field, void *value) {
    if (!field->nullable) return ms_write_struct(to, field->structure, value);
    /* In front of a tagged struct Kafka writes a varint, 0 for null and 1 for a struct. */
    if (value == py.none) return write_byte(to, field->tag < 0 ? 0xFF : 0);
    return write_byte(to, 1) && ms_write_struct(to, field->structure, value);
}

/* A value that nothing takes away meanwhile: where Python runs, the caller holds it. */
static int write_value(codec_writer *to, const ms_field *field, void *value, int flexible) {
    if (field->kind <= MS_UUID) return write_number(to, field->kind, value);
    if (field->kind == MS_STRUCT) return write_nested(to, field, value);
    if (field->kind == MS_RECORDS) return write_records(to, value, flexible);
    if (value == py.none && field->nullable)
        return write_length(to, flexible, field->kind != MS_STRING, -1);
    if (field->kind == MS_STRING) return write_text(to, value, flexible);
    if (field->kind == MS_ARRAY) return write_array(to, field, value, flexible);
    return write_buffer(to, value, flexible);
}

/* Whether a value is another than the default of its field: 1, 0, or -1 with an exception. */
static int differs(const ms_field *field, void *value) {
    if (value == field->default_value) return 0;
    if (field->differs == MS_IF_NOT_IT) return 1;
    if (field->differs == MS_IF_UNEQUAL) return py.compare(value, field->default_value, PY_NE);
    int truth = value == py.yes ? 1 : value == py.no ? 0 : py.is_true(value);
    return truth < 0 || field->differs == MS_IF_TRUE ? truth : !truth;
}

/* One field of an object, held while it is written. */
static int write_field(codec_writer *to, const ms_field *field, void *message, int flexible) {
    void *value = *slot_of(message, field);
    if (MS_UNLIKELY(!value)) return 0;
    if (type_of(value) == py.int_type && field->kind > MS_BOOL && field->kind <= MS_UINT32)
        return write_int(to, field->kind, value);
    py.keep(value);
    int done = write_value(to, field, value, flexible);
    py.drop(value);
    return done;
}

/* A tagged field: tag, size, value. */
static int write_tag(codec_writer *to, const ms_field *field, void *message) {
    uint8_t digits[5];
    if (!write_uvarint(to, (uint64_t)field->tag)) return 0;
    int64_t start = to->size;
    if (!write_field(to, field, message, 1)) return 0;
    int64_t size = to->size - start;
    if (size > INT32_MAX) return 0;
    int width = put_uvarint(digits, (uint64_t)size);
    if (!extend(to, width)) return 0;
    __builtin_memmove(to->data + start + width, to->data + start, (size_t)size);
    __builtin_memcpy(to->data + start, digits, (size_t)width);
    return 1;
}

static int write_tags(codec_writer *to, const ms_struct *body, void *message) {
    uint64_t present = 0;
    int count = 0;
    for (int32_t i = 0; i < body->tagged_count; i++) {
        void *value = *slot_of(message, body->tagged + i);
        if (!value) return 0;
        if (MS_LIKELY(value == body->tagged[i].default_value)) continue;
        py.keep(value);
        int other = differs(body->tagged + i, value);
        py.drop(value);
        if (other < 0) return 0;
        present |= (uint64_t)other << i;
        count += other;
    }
    if (!write_byte(to, (uint8_t)count)) return 0;
    for (int32_t i = 0; present; i++, present >>= 1)
        if (present & 1 && !write_tag(to, body->tagged + i, message)) return 0;
    return 1;
}

/* 0 where a field that the version lacks has a value. */
static int is_sendable(const ms_struct *body, void *message) {
    for (int32_t i = 0; i < body->checked_count; i++) {
        void *value = *slot_of(message, body->checked + i);
        if (!value) return 0;
        if (MS_LIKELY(value == body->checked[i].default_value)) continue;
        py.keep(value);
        int other = differs(body->checked + i, value);
        py.drop(value);
        if (other) return 0;
    }
    return 1;
}

int ms_write_struct(codec_writer *to, const ms_struct *body, void *message) {
    if (type_of(message) != body->type && type_of(message) != body->default_type) return 0;
    if (body->checked_count && !is_sendable(body, message)) return 0;
    for (int32_t i = 0; i < body->field_count; i++)
        if (MS_UNLIKELY(!write_field(to, body->fields + i, message, body->flexible))) return 0;
    return !body->flexible || write_tags(to, body, message);
}
