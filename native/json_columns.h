/* JSON objects into Arrow columns, field by field, by the names and types of the columns.
 *
 * What is read here is what millstream.spark.lakehouse.formats.json_lines reads; an object of which
 * that is not certain, a wrong one above all, is left to it. Mirrored by
 * millstream.records.json_columns_kernel. */
#ifndef MILLSTREAM_JSON_COLUMNS_H
#define MILLSTREAM_JSON_COLUMNS_H

#include "arrow_out.h"

/* Raised with every change below or in arrow_out.h; the loader refuses another number. */
#define MS_JSON_COLUMNS_ABI 3

MS_API int32_t ms_json_columns_abi(void);

/* What a column takes; null always. */
enum {
    MS_TAKES_TEXT = 0,
    MS_TAKES_32 = 1, /* whole numbers of so many bits */
    MS_TAKES_64 = 2,
    MS_TAKES_DOUBLE = 3,
    MS_TAKES_BOOLEAN = 4,
    MS_TAKES_INSTANT = 5, /* a date and a time in text, in UTC if it has no zone */
    MS_TAKES_LOCAL = 6,   /* without a zone */
    MS_TAKES_OBJECT = 7,
    MS_TAKES_LIST = 8,
    MS_TAKES_FLOAT = 9,
    MS_TAKES_DECIMAL = 10, /* also in text */
    MS_TAKES_DATE = 11,    /* in text */
    MS_TAKES_MAP = 12,     /* an object; the columns after it are those of an entry, key and value */
};

/* One for each column of arrow_out.h, in the same order, and one more for the objects that are the
 * rows; only fields of objects have names. */
typedef struct {
    const uint8_t *name; /* eight bytes more can be read behind it */
    int64_t name_size;
    int32_t takes;
    int32_t is_plain;      /* a text of JSON has the name as it is */
    int32_t precision;     /* of a decimal */
    int32_t scale;
    const int32_t *sorted; /* the columns right inside of an object: short names first, then by bytes */
    int64_t inside;        /* how many they are */
} ms_json_field;

/* Reads the values from row first on, as ms_avro_rows does: see there. A null is a row of nulls.
 * Fields that no column has are left out with skip_unknown, else their objects are not read. Without
 * a fault, its position is how many names were looked at to find those of the fields. */
MS_API int64_t ms_json_rows(const ms_json_field *fields, int64_t skip_unknown,
                            const ms_binary_in *values, int64_t first, int64_t rows,
                            ms_out *columns, int64_t count, int64_t *written, uint8_t *states,
                            ms_fault *fault);

#endif
