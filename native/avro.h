/* Avro datums into Arrow columns, by a program that was made of the schema that they were written
 * with and of the columns.
 *
 * What is read here is what millstream.spark.lakehouse.formats.avro reads value by value; a datum of
 * which that is not certain, a wrong one above all, is left to it. Mirrored by
 * millstream.records.avro_kernel. The data are never trusted, the program is. */
#ifndef MILLSTREAM_AVRO_H
#define MILLSTREAM_AVRO_H

#include "arrow_out.h"

/* Raised with every change below or in arrow_out.h; the loader refuses another number. */
#define MS_AVRO_ABI 1

MS_API int32_t ms_avro_abi(void);

/* What one step reads. */
enum {
    MS_AVRO_NULL = 0,
    MS_AVRO_BOOLEAN = 1,
    MS_AVRO_INT_32 = 2,  /* int or long, low to high, times factor; into 32 bits */
    MS_AVRO_INT_64 = 3,  /* the same into 64 bits */
    MS_AVRO_INT_DOUBLE = 4,
    MS_AVRO_FLOAT = 5,
    MS_AVRO_FLOAT_DOUBLE = 6,
    MS_AVRO_DOUBLE = 7,
    MS_AVRO_BYTES = 8,
    MS_AVRO_TEXT = 9,
    MS_AVRO_UUID = 10,
    MS_AVRO_FIXED = 11,         /* size bytes */
    MS_AVRO_DECIMAL = 12,       /* bytes: a number of up to high digits */
    MS_AVRO_FIXED_DECIMAL = 13, /* the same in size bytes */
    MS_AVRO_ENUM = 14,          /* size symbols; those of offsets that go back are not taken */
    MS_AVRO_ARRAY = 15,         /* then the steps of an item */
    MS_AVRO_MAP = 16,           /* then those of a value */
    MS_AVRO_RECORD = 17,        /* then those of the fields */
    MS_AVRO_UNION = 18,         /* branch low is the step that follows, branch high is null */
    MS_AVRO_ABSENT = 19,        /* reads nothing, and writes a null */
};

/* Steps stand in one array, each before those that are inside of it. */
typedef struct {
    int32_t kind;
    int32_t column; /* -1: what is read is left out */
    int32_t end;    /* how many steps it takes, with those inside of it */
    int32_t unused;
    int64_t low;
    int64_t high;
    int64_t factor;
    int64_t size;
    const uint8_t *text;
    const int32_t *offsets;
} ms_avro_step;

/* Reads the values from row first on, of which written were read before into so many rows. states
 * says of each: 0 read, 1 left to the caller, as nulls are. Returns the row at which it stopped,
 * rows at the end; before that with a fault: MS_CAPACITY, index is the column and position the
 * bytes of data that it needs, 0 for more entries; MS_COLUMN, index is the row. */
MS_API int64_t ms_avro_rows(const ms_avro_step *steps, const ms_binary_in *values, int64_t first,
                            int64_t rows, ms_out *columns, int64_t count, int64_t *written,
                            uint8_t *states, ms_fault *fault);

#endif
