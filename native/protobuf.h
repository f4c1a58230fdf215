/* Protobuf messages into Arrow columns, by a program that was made of the message's description and
 * of the columns.
 *
 * What is read here is what millstream.spark.lakehouse.formats.protobuf reads value by value; a
 * message of which that is not certain, a wrong one above all, is left to it. So is what may be
 * written and hardly ever is: a field twice that is not repeated, two members of a oneof, a key of a
 * map twice, a group, items of many fields in turns. Mirrored by millstream.records.protobuf_kernel.
 * The data are never trusted, the program is. */
#ifndef MILLSTREAM_PROTOBUF_H
#define MILLSTREAM_PROTOBUF_H

#include "arrow_out.h"

/* Raised with every change below or in arrow_out.h; the loader refuses another number. */
#define MS_PROTOBUF_ABI 1

MS_API int32_t ms_protobuf_abi(void);

/* What a field holds. Integers are of low to high. */
enum {
    MS_PROTOBUF_INT32 = 0,
    MS_PROTOBUF_UINT32 = 1,
    MS_PROTOBUF_SINT32 = 2,
    MS_PROTOBUF_INT64 = 3,
    MS_PROTOBUF_SINT64 = 4,
    MS_PROTOBUF_UINT64 = 5, /* into 128 bits */
    MS_PROTOBUF_BOOL = 6,
    MS_PROTOBUF_ENUM = 7, /* size symbols, by their numbers; others are not taken */
    MS_PROTOBUF_FIXED32 = 8,
    MS_PROTOBUF_SFIXED32 = 9,
    MS_PROTOBUF_FIXED64 = 10, /* into 128 bits */
    MS_PROTOBUF_SFIXED64 = 11,
    MS_PROTOBUF_FLOAT = 12,
    MS_PROTOBUF_DOUBLE = 13,
    MS_PROTOBUF_TEXT = 14,
    MS_PROTOBUF_BYTES = 15,
    MS_PROTOBUF_MESSAGE = 16,   /* of the fields inside */
    MS_PROTOBUF_TIMESTAMP = 17, /* google.protobuf.Timestamp, as microseconds */
    MS_PROTOBUF_NOTHING = 18,   /* no field: the column is null */
};

/* What a column of integers or fractions has for each. */
enum { MS_INTO_32 = 0, MS_INTO_64 = 1, MS_INTO_DOUBLE = 2 };

/* How often a field may be there. */
enum { MS_ONCE = 0, MS_REPEATED = 1, MS_MAP = 2 };

/* What a field is that is not there. */
enum { MS_ABSENT_NULL = 0, MS_ABSENT_ZERO = 1, MS_ABSENT_UNCERTAIN = 2 };

/* Steps stand in one array. Those inside of one stand together, by the numbers of their fields: of
 * a map they are key and value. */
typedef struct {
    int32_t kind;
    int32_t column; /* -1: what is read is left out */
    int32_t number; /* of the field */
    int32_t first;  /* the first step inside of it */
    int32_t count;  /* how many are */
    int32_t often;
    int32_t absent;
    int32_t oneof; /* the first member of its oneof, counted among its siblings; -1: of none */
    int32_t into;
    int32_t unused;
    int64_t low;
    int64_t high;
    int64_t size;
    const uint8_t *text;
    const int32_t *offsets; /* of the symbols in the text, one more than symbols */
    const int32_t *numbers; /* ascending */
} ms_protobuf_step;

/* Reads the values from row first on, as ms_avro_rows does: see there. The first of the steps is
 * the message. */
MS_API int64_t ms_protobuf_rows(const ms_protobuf_step *steps, int64_t step_count,
                                const ms_binary_in *values, int64_t first, int64_t rows,
                                ms_out *columns, int64_t count, int64_t *written, uint8_t *states,
                                ms_fault *fault);

#endif
