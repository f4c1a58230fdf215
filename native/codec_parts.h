/* What the two halves of the codec share. */
#ifndef MILLSTREAM_CODEC_PARTS_H
#define MILLSTREAM_CODEC_PARTS_H

#include "codec.h"
#include "numbers.h"

#define MAX_STRING_BYTES 0x7FFF

extern ms_interpreter ms_python_now __attribute__((visibility("hidden")));
#define py ms_python_now

MS_INLINE void *shared(void *object) {
    py.keep(object);
    return object;
}

MS_INLINE void *type_of(void *object) { return ((void **)object)[1]; }

MS_INLINE void **slot_of(void *object, const ms_field *field) {
    return (void **)((char *)object + field->slot);
}

/* A number among the arguments of a function; 0 where it is none. */
MS_INLINE int take_int(void *argument, int64_t *number) {
    int overflow;
    if (type_of(argument) != py.int_type) return 0;
    *number = py.as_int(argument, &overflow);
    return !overflow;
}

/* Puts a new number into a slot of a new object; 0 where there is no memory. */
MS_INLINE int put_int(void *object, int32_t slot, int64_t number) {
    return (*(void **)((char *)object + slot) = py.new_int(number)) != (void *)0;
}

/* The functions beside those for messages; see codec.h and receive.h. */
void *ms_decode_header(void *self, void *const *arguments, intptr_t count);
void *ms_receive(void *self, void *const *arguments, intptr_t count);
void *ms_find_batch(void *self, void *const *arguments, intptr_t count);

/* Lets Python decide: the same call once more, to the fallback; NULL with an exception that it must
 * not take away, an interrupt above all. */
void *ms_fall_back(void *fallback, void *const *arguments, intptr_t count);

extern const char ms_capsule[] __attribute__((visibility("hidden")));

/* The message and *position behind it; NULL for whatever Python has to decide. owner is what lies
 * in memory at data. */
void *ms_decode_message(const ms_struct *body, void *owner, const uint8_t *data, int64_t size,
                        int64_t *position, int64_t max_elements);

/* Skips tagged fields that nobody knows; 0 where they are not valid. */
int ms_skip_tags(const uint8_t *data, int64_t size, int64_t *position, int64_t max_elements);

enum { FIRST_BYTES = 1024 };

/* A message that is being written: whole pieces, and the one that is last. */
typedef struct {
    void *pieces; /* a list, or NULL until there are any */
    uint8_t *data;
    int64_t size, capacity;
    int64_t sent; /* bytes of the pieces */
    int64_t merge_below;
    uint8_t first[FIRST_BYTES];
} codec_writer;

void ms_begin_writing(codec_writer *writer, int64_t merge_below);
void ms_end_writing(codec_writer *writer);

/* Each answers 0 where Python has to decide. */
int ms_write(codec_writer *writer, const void *data, int64_t size);
int ms_write_struct(codec_writer *writer, const ms_struct *body, void *message);
int ms_write_string(codec_writer *writer, void *text);

#endif
