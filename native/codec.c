/* The functions that Python calls. See codec.h. */
#include "codec_parts.h"

#define MAX_HEADER_TAGS 256
#define HEADER_START 10
#define RESPONSE_START 8
#define REQUEST_START 12

ms_interpreter ms_python_now;

const char ms_capsule[] = "millstream.codec";

int32_t ms_codec_abi(void) { return MS_CODEC_ABI; }

void ms_codec_begin(const ms_interpreter *interpreter) { py = *interpreter; }

void *ms_fall_back(void *fallback, void *const *arguments, intptr_t count) {
    if (py.error()) {
        if (!py.is_error(py.own_errors)) return (void *)0;
        py.clear_error();
    }
    void *all = py.new_tuple(count);
    if (!all) return all;
    for (intptr_t i = 0; i < count; i++)
        if (py.set_in_tuple(all, i, shared(arguments[i]))) {
            py.drop(all);
            return (void *)0;
        }
    void *result = py.call(fallback, all);
    py.drop(all);
    return result;
}

/* A tuple of two objects that become its own. */
static void *new_pair(void *one, void *other) {
    void *pair = one && other ? py.new_tuple(2) : (void *)0;
    if (!pair) {
        if (one) py.drop(one);
        if (other) py.drop(other);
        return pair;
    }
    int failed = py.set_in_tuple(pair, 0, one);
    if (py.set_in_tuple(pair, 1, other) || failed) {
        py.drop(pair);
        return (void *)0;
    }
    return pair;
}

static void *decode_at(const ms_codec *codec, void *owner, int64_t *position, int64_t limit) {
    py_buffer view;
    if (py.get_buffer(owner, &view, 0)) return (void *)0;
    void *message = ms_decode_message(codec->body, owner, view.buf, view.len, position, limit);
    py.release_buffer(&view);
    return message;
}

static void *decode(void *self, void *const *arguments, intptr_t count) {
    const ms_codec *codec = py.capsule_pointer(self, ms_capsule);
    int64_t position, limit;
    void *result = (void *)0;
    if (count == 3 && take_int(arguments[1], &position) && take_int(arguments[2], &limit)) {
        void *message = decode_at(codec, arguments[0], &position, limit);
        if (message) result = new_pair(message, py.new_int(position));
    }
    return result ? result : ms_fall_back(codec->fallback, arguments, count);
}

static void *decode_request(void *self, void *const *arguments, intptr_t count) {
    const ms_codec *codec = py.capsule_pointer(self, ms_capsule);
    int64_t position;
    void *message = (void *)0;
    if (count == 2 && take_int(arguments[1], &position))
        message = decode_at(codec, arguments[0], &position, codec->max_elements);
    return message ? message : ms_fall_back(codec->fallback, arguments, count);
}

static void *read_response(const ms_codec *codec, void *owner, const py_buffer *frame) {
    int64_t position = 4;
    if (frame->len < 4) return (void *)0;
    if (codec->flexible_header &&
        !ms_skip_tags(frame->buf, frame->len, &position, MAX_HEADER_TAGS))
        return (void *)0;
    void *message = ms_decode_message(codec->body, owner, frame->buf, frame->len, &position,
                                      codec->max_elements);
    return message ? new_pair(py.new_int((int32_t)get_u32(frame->buf)), message) : message;
}

static void *decode_response(void *self, void *const *arguments, intptr_t count) {
    const ms_codec *codec = py.capsule_pointer(self, ms_capsule);
    py_buffer frame;
    void *pair = (void *)0;
    if (count == 1 && !py.get_buffer(arguments[0], &frame, 0)) {
        pair = read_response(codec, arguments[0], &frame);
        py.release_buffer(&frame);
    }
    return pair ? pair : ms_fall_back(codec->fallback, arguments, count);
}

/* All pieces as a list, whose first one gets the frame size where there is a head for it. */
static void *finish(codec_writer *writer, int has_head, int64_t *total) {
    int64_t size = *total = writer->sent + writer->size;
    if (has_head && size - 4 > INT32_MAX) return (void *)0;
    if (!writer->pieces && !(writer->pieces = py.new_list(0))) return (void *)0;
    if (writer->size || !writer->sent) {
        void *last = py.new_bytes((const char *)writer->data, writer->size);
        if (!last) return last;
        int failed = py.append(writer->pieces, last);
        py.drop(last);
        if (failed) return (void *)0;
    }
    if (has_head) {
        /* Nobody else has seen the object yet. */
        void *first = py.list_item(writer->pieces, 0);
        put_u32((uint8_t *)py.as_bytes(first), (uint32_t)(size - 4));
    }
    return shared(writer->pieces);
}

static void *new_outgoing(const ms_codec *codec, codec_writer *writer) {
    int64_t size;
    void *pieces = finish(writer, 1, &size);
    void *number = pieces ? py.new_int(size) : (void *)0;
    void *made = number ? py.new_instance(codec->outgoing_type, 0) : (void *)0;
    if (made) {
        *(void **)((char *)made + codec->pieces_slot) = pieces;
        *(void **)((char *)made + codec->size_slot) = number;
        return made;
    }
    if (pieces) py.drop(pieces);
    if (number) py.drop(number);
    return made;
}

static void *encode(void *self, void *const *arguments, intptr_t count) {
    const ms_codec *codec = py.capsule_pointer(self, ms_capsule);
    void *pieces = (void *)0;
    int64_t size;
    codec_writer writer;
    ms_begin_writing(&writer, codec->merge_below);
    if (count == 1 && ms_write_struct(&writer, codec->body, arguments[0]))
        pieces = finish(&writer, 0, &size);
    ms_end_writing(&writer);
    return pieces ? pieces : ms_fall_back(codec->fallback, arguments, count);
}

/* Writes the number of a request, which both begin with; 0 where it is none. */
static int write_start(codec_writer *writer, uint8_t *start, int size, void *correlation_id) {
    int64_t number;
    if (!take_int(correlation_id, &number) || number != (int32_t)number) return 0;
    put_u32(start + size - 4, (uint32_t)number);
    return ms_write(writer, start, size);
}

static void *encode_request(void *self, void *const *arguments, intptr_t count) {
    const ms_codec *codec = py.capsule_pointer(self, ms_capsule);
    uint8_t start[REQUEST_START] = {0};
    void *outgoing = (void *)0;
    codec_writer writer;
    ms_begin_writing(&writer, codec->merge_below);
    put_u16(start + 4, (uint16_t)codec->api_key);
    put_u16(start + 6, (uint16_t)codec->version);
    if (count == 3 && write_start(&writer, start, REQUEST_START, arguments[1]) &&
        ms_write_string(&writer, arguments[2]) &&
        (!codec->flexible_header || ms_write(&writer, "", 1)) &&
        ms_write_struct(&writer, codec->body, arguments[0]))
        outgoing = new_outgoing(codec, &writer);
    ms_end_writing(&writer);
    return outgoing ? outgoing : ms_fall_back(codec->fallback, arguments, count);
}

static void *encode_response(void *self, void *const *arguments, intptr_t count) {
    const ms_codec *codec = py.capsule_pointer(self, ms_capsule);
    uint8_t start[RESPONSE_START] = {0};
    void *outgoing = (void *)0;
    codec_writer writer;
    ms_begin_writing(&writer, codec->merge_below);
    if (count == 2 && write_start(&writer, start, RESPONSE_START, arguments[0]) &&
        (!codec->flexible_header || ms_write(&writer, "", 1)) &&
        ms_write_struct(&writer, codec->body, arguments[1]))
        outgoing = new_outgoing(codec, &writer);
    ms_end_writing(&writer);
    return outgoing ? outgoing : ms_fall_back(codec->fallback, arguments, count);
}

static int read_header(const ms_header *header, const uint8_t *frame, int64_t size, void *made) {
    if (size < HEADER_START) return 0;
    int32_t key = (int16_t)(frame[0] << 8 | frame[1]), version = (int16_t)(frame[2] << 8 | frame[3]);
    int32_t length = (int16_t)(frame[8] << 8 | frame[9]);
    int64_t position = HEADER_START;
    if (key < 0 || key >= header->key_count || header->first_flexible[key] < 0) return 0;
    void **client_id = (void **)((char *)made + header->client_id_slot);
    if (length > size - position) return 0;
    *client_id = length < 0 ? shared(py.none)
                            : py.new_text((const char *)frame + position, length, (void *)0);
    if (!*client_id) return 0;
    if (length > 0) position += length;
    if (version >= header->first_flexible[key] &&
        !ms_skip_tags(frame, size, &position, MAX_HEADER_TAGS))
        return 0;
    return put_int(made, header->key_slot, key) && put_int(made, header->version_slot, version) &&
           put_int(made, header->correlation_id_slot, (int32_t)get_u32(frame + 4)) &&
           put_int(made, header->position_slot, position);
}

void *ms_decode_header(void *self, void *const *arguments, intptr_t count) {
    const ms_header *header = py.capsule_pointer(self, ms_capsule);
    py_buffer frame;
    void *made = (void *)0;
    if (count == 1 && !py.get_buffer(arguments[0], &frame, 0)) {
        made = py.new_instance(header->type, 0);
        if (made && !read_header(header, frame.buf, frame.len, made)) {
            py.drop(made);
            made = (void *)0;
        }
        py.release_buffer(&frame);
    }
    return made ? made : ms_fall_back(header->fallback, arguments, count);
}

void *ms_codec_function(int32_t which, const void *codec) {
    static const py_method methods[] = {
        {"decode", decode, PY_FASTCALL, (void *)0},
        {"decode_request", decode_request, PY_FASTCALL, (void *)0},
        {"decode_response", decode_response, PY_FASTCALL, (void *)0},
        {"encode", encode, PY_FASTCALL, (void *)0},
        {"encode_request", encode_request, PY_FASTCALL, (void *)0},
        {"encode_response", encode_response, PY_FASTCALL, (void *)0},
        {"decode_request_header", ms_decode_header, PY_FASTCALL, (void *)0},
        {"receive", ms_receive, PY_FASTCALL, (void *)0},
        {"find_batch", ms_find_batch, PY_FASTCALL, (void *)0},
    };
    void *self = py.new_capsule((void *)codec, ms_capsule, (void *)0);
    if (!self) return self;
    void *made = py.new_function((void *)(methods + which), self, (void *)0);
    py.drop(self);
    return made;
}
