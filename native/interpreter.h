/* What the codec uses of Python: functions of its stable ABI, which the caller hands over, because
 * the kernel is linked to no interpreter and compiled without its headers. Mirrored by
 * millstream.native.interpreter.
 *
 * Of the layout of objects two things are known, and tried out by the caller beforehand: the second
 * word of an object is its type, and __slots__ are pointers at the places that it found. */
#ifndef MILLSTREAM_INTERPRETER_H
#define MILLSTREAM_INTERPRETER_H

#include <stdint.h>

/* Under their own names, with Py in front: see millstream.native.interpreter. */
typedef struct {
    void *(*new_instance)(void *type, intptr_t size);
    void *(*new_int)(long long number);
    void *(*new_float)(double number);
    void *(*new_text)(const char *data, intptr_t size, const char *errors);
    void *(*new_bytes)(const char *data, intptr_t size);
    void *(*new_list)(intptr_t size);
    void *(*new_tuple)(intptr_t size);
    void *(*new_view)(void *object);
    void *(*new_slice)(void *start, void *stop, void *step);
    void *(*new_function)(void *definition, void *self, void *module);
    void *(*new_capsule)(void *pointer, const char *name, void *destructor);
    void *(*capsule_pointer)(void *capsule, const char *name);
    int (*set_in_list)(void *list, intptr_t index, void *item);
    int (*set_in_tuple)(void *tuple, intptr_t index, void *item);
    int (*append)(void *list, void *item);
    void *(*list_item)(void *list, intptr_t index);   /* borrowed */
    void *(*tuple_item)(void *tuple, intptr_t index); /* borrowed */
    void *(*item)(void *object, void *key);
    intptr_t (*size)(void *object);
    void *(*call)(void *function, void *arguments);
    long long (*as_int)(void *object, int *overflow);
    double (*as_float)(void *object);
    const char *(*as_text)(void *text, intptr_t *size);
    char *(*as_bytes)(void *bytes);
    int (*is_true)(void *object);
    int (*compare)(void *one, void *other, int operation);
    int (*get_buffer)(void *object, void *view, int flags);
    void (*release_buffer)(void *view);
    void (*keep)(void *object);
    void (*drop)(void *object);
    void *(*error)(void); /* borrowed */
    void (*clear_error)(void);
    int (*is_error)(void *types);
    void *none;
    void *yes;
    void *no;
    void *int_type;
    void *text_type;
    void *bytes_type;
    void *bytearray_type;
    void *list_type;
    void *tuple_type;
    void *view_type;
    void *own_errors; /* exceptions that say no more than that a value or bytes are not right */
} ms_interpreter;

/* Py_buffer. */
typedef struct {
    void *buf, *obj;
    intptr_t len, itemsize;
    int readonly, ndim;
    char *format;
    intptr_t *shape, *strides, *suboffsets;
    void *internal;
} py_buffer;

/* PyMethodDef of a function that is called with an array of its arguments. */
typedef struct {
    const char *name;
    void *(*call)(void *self, void *const *arguments, intptr_t count);
    int flags;
    const char *doc;
} py_method;

#define PY_FASTCALL 0x80
#define PY_NE 3

#endif
