/* The protocol codec: messages to and from Python's objects, by tables.
 *
 * millstream.protocol.native_codec makes the tables from the classes of a message, once for each
 * version, and keeps them for good; nothing here is changed after that. A function that is made
 * here is called by Python as its own: it encodes or decodes a whole message, or hands its arguments
 * to the fallback, which is the same in Python, decides and words every error. What the Python of
 * a value raises beside that, such as an interrupt that came meanwhile, goes to the caller. Input is
 * never trusted; all functions need the interpreter's lock. */
#ifndef MILLSTREAM_CODEC_H
#define MILLSTREAM_CODEC_H

#include "interpreter.h"
#include "kernel.h"

/* Raised with every change below or in interpreter.h; the loader refuses another number. */
#define MS_CODEC_ABI 3

MS_API int32_t ms_codec_abi(void);

/* ms_field.kind */
enum {
    MS_BOOL = 0,
    MS_INT8 = 1,
    MS_INT16 = 2,
    MS_INT32 = 3,
    MS_INT64 = 4,
    MS_UINT16 = 5,
    MS_UINT32 = 6,
    MS_FLOAT64 = 7,
    MS_UUID = 8,
    MS_STRING = 9,
    MS_BYTES = 10,
    MS_RECORDS = 11,
    MS_STRUCT = 12,
    MS_ARRAY = 13,
};

/* ms_field.differs: what makes a value another than the default. */
enum {
    MS_IF_TRUE = 0,     /* the default is False, or an empty list */
    MS_IF_FALSE = 1,    /* the default is True */
    MS_IF_NOT_IT = 2,   /* the default is None */
    MS_IF_UNEQUAL = 3,  /* the default is compared by value */
};

struct ms_struct;

/* A field in one version, or the element of an array. */
typedef struct ms_field {
    int32_t kind;
    int32_t slot;     /* where its value is in the object, in bytes */
    int32_t nullable; /* 1: may be null */
    int32_t tag;      /* -1: not tagged */
    int32_t differs;
    int32_t smallest;      /* of an array: the fewest bytes of an element, at least 1 */
    void *default_value;   /* borrowed; NULL is a new list */
    const struct ms_field *element;    /* of an array, unless of structs that are never null */
    const struct ms_struct *structure; /* of a struct, and of an array of such */
} ms_field;

/* A class in one version. */
typedef struct ms_struct {
    void *type;              /* borrowed, as the next one */
    void *default_type;      /* of the instance that is the default of a field; may be NULL */
    const ms_field *fields;  /* untagged and in this version, in their order */
    const ms_field *tagged;  /* in this version, by their tags */
    const ms_field *others;  /* tagged ones and those that the version lacks: begin as default */
    const ms_field *checked; /* the version lacks them, and to lose a value would be an error */
    int32_t field_count;
    int32_t tagged_count;
    int32_t other_count;
    int32_t checked_count;
    int32_t flexible;
    int32_t spare;
} ms_struct;

/* What a function works with, which must outlive it. */
typedef struct {
    const ms_struct *body;
    void *fallback;          /* borrowed; called with the same arguments */
    int64_t max_elements;    /* array elements and tagged fields of a message to decode */
    void *outgoing_type;     /* borrowed: millstream.protocol.outgoing.Outgoing */
    int32_t pieces_slot;     /* of an outgoing */
    int32_t size_slot;
    int32_t merge_below;     /* smaller records in memory are copied */
    int32_t flexible_header;
    int32_t api_key;
    int32_t version;
} ms_codec;

/* Which function; ms_codec_function. */
enum {
    MS_DECODE = 0,          /* (buffer, position, max elements) -> (message, position) */
    MS_DECODE_REQUEST = 1,  /* (frame, position) -> message */
    MS_DECODE_RESPONSE = 2, /* (frame) -> (correlation id, message) */
    MS_ENCODE = 3,          /* (message) -> pieces */
    MS_ENCODE_REQUEST = 4,  /* (message, correlation id, client id) -> outgoing */
    MS_ENCODE_RESPONSE = 5, /* (correlation id, message) -> outgoing */
    MS_DECODE_HEADER = 6,   /* (frame) -> header of a request; with an ms_header */
    MS_RECEIVE = 7,         /* see receive.h */
    MS_FIND_BATCH = 8,      /* see receive.h */
};

/* What is needed to read the header of a request. */
typedef struct {
    void *fallback; /* borrowed, as the next one */
    void *type;     /* millstream.protocol.headers.RequestHeader */
    const int16_t *first_flexible; /* of each API by its key; -1: there is none */
    int32_t key_count;
    int32_t key_slot;
    int32_t version_slot;
    int32_t correlation_id_slot;
    int32_t client_id_slot;
    int32_t position_slot;
} ms_header;

/* Takes over the functions of the interpreter, before anything else is called. */
MS_API void ms_codec_begin(const ms_interpreter *interpreter);

/* Returns a new function of Python, or NULL with an exception. codec is what it works with. */
MS_API void *ms_codec_function(int32_t which, const void *codec);

#endif
