/* The columns kernel: record batches to and from columns, checksums and key hashes.
 *
 * A plain C interface, linked to no Python, called through ctypes by millstream.records.kernel,
 * which mirrors every structure below. No function keeps anything between calls, allocates, or
 * waits, so all of them may run in several threads at once. Input is never trusted: whatever a
 * batch claims, reads stay inside the sizes given and writes inside the capacities given.
 *
 * Formats: org.apache.kafka.common.record.DefaultRecordBatch and DefaultRecord, drawn in
 * millstream/records/batch.py and record.py; Arrow's columnar format for the columns.
 */
#ifndef MILLSTREAM_KERNEL_H
#define MILLSTREAM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define MS_API __declspec(dllexport)
#else
#define MS_API __attribute__((visibility("default")))
#endif

/* Raised with every change of a structure or a signature; the loader refuses another number. */
#define MS_ABI 7

MS_API int32_t ms_abi(void);

/* CRC-32C of data, going on from crc (0 at the start). */
MS_API uint32_t ms_crc32c(uint32_t crc, const uint8_t *data, int64_t size);

/* MurmurHash2 with the seed of Kafka's producers (Utils.murmur2). */
MS_API uint32_t ms_murmur2(const uint8_t *data, int64_t size);

/* What went wrong; ms_fault.code. */
enum {
    MS_OK = 0,
    MS_VARINT = 1,       /* a number runs past the batch or has too many bytes */
    MS_FIELD = 2,        /* a field runs past its batch */
    MS_RECORD = 3,       /* the fields of a record do not fill its length */
    MS_HEADERS = 4,      /* a header count that does not fit, or a header without a key */
    MS_PAYLOAD = 5,      /* the records of a batch do not fill it, or are too few */
    MS_CAPACITY = 6,     /* the output is too small */
    MS_BATCH_HEADER = 7, /* a batch header that cannot be one; position says where */
    MS_CRC = 8,          /* a checksum that does not hold; position says where */
    MS_COLUMN = 9,       /* a column whose offsets do not fit its data; row says where */
    MS_PARTITION = 10,   /* a partition that does not exist; row says where */
    MS_OBJECT = 11,      /* an object could not be made */
};

/* Where something went wrong: in which batch or row, and at which byte of the batch's records. */
typedef struct {
    int64_t code;
    int64_t index;
    int64_t position;
} ms_fault;

/* One batch: its records, decompressed, and what its header says. */
typedef struct {
    const uint8_t *records;
    int64_t size;
    int64_t position; /* where the batch starts in the buffer that it was found in */
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t count;
    int32_t attributes;
} ms_batch;

/* How far ms_find_batches came. */
typedef struct {
    int64_t found;       /* batches that hold wanted records */
    int64_t position;    /* after the last whole batch that was looked at */
    int64_t next_offset; /* after its last offset, at most end_offset */
    int64_t at_end;      /* 1 when a batch at or past end_offset ended the walk */
    int64_t rows;        /* records that the found batches announce */
    int64_t compressed;  /* how many of the found batches are */
} ms_walk;

/* Walks the batches of data, which start at position, up to end_offset. Data batches that hold
 * offsets from start_offset on go to out, of which there are capacity; without out they are
 * counted. check_crcs holds for all that are walked over. A batch that is cut off ends the walk. */
MS_API void ms_find_batches(const uint8_t *data, int64_t size, int64_t position,
                            int64_t start_offset, int64_t end_offset, int32_t check_crcs,
                            ms_batch *out, int64_t capacity, ms_walk *walk, ms_fault *fault);

/* Sizes of what a decoding will write; key_bytes and the others without nulls. */
typedef struct {
    int64_t rows;
    int64_t key_bytes;
    int64_t value_bytes;
    int64_t headers;
    int64_t header_key_bytes;
    int64_t header_value_bytes;
} ms_sizes;

/* Checks all records of the batches and says what those in [start_offset, end_offset) hold. */
MS_API void ms_measure(const ms_batch *batches, int64_t count, int64_t start_offset,
                       int64_t end_offset, ms_sizes *sizes, ms_fault *fault);

/* Says what the records of the batches can hold at most, from the batches' sizes alone: rows, and
 * in key_bytes and value_bytes all their bytes. headers is 0. */
MS_API void ms_bound(const ms_batch *batches, int64_t count, ms_sizes *sizes, ms_fault *fault);

/* Where a column of byte strings goes, as Arrow lays it out: offsets of rows + 1 entries, data of
 * capacity bytes, a validity bitmap. Without offsets the column is not wanted. nulls is told. */
typedef struct {
    int32_t *offsets;
    uint8_t *data;
    uint8_t *validity;
    int64_t capacity;
    int64_t nulls;
} ms_binary_out;

/* Where decoded columns go; a NULL pointer is a column that is not wanted. */
typedef struct {
    int64_t *offset;
    int64_t *timestamp;
    int64_t timestamp_factor; /* units in a millisecond: 1000 for microseconds; times that they do
                               * not hold become the first or the last that they do */
    int32_t *timestamp_type;
    ms_binary_out key;
    ms_binary_out value;
    int32_t *header_offsets;  /* of the list, rows + 1 entries */
    uint8_t *header_validity; /* a record without headers is null */
    int64_t header_nulls;
    int64_t header_capacity; /* entries of header_key and header_value */
    ms_binary_out header_key;
    ms_binary_out header_value;
    int64_t rows; /* capacity */
} ms_columns;

/* Checks all records of the batches and writes those in [start_offset, end_offset). Capacities
 * come from ms_measure, which reads the records twice then, or from ms_bound: a header for which
 * there is no room ends the decoding with MS_CAPACITY. rows tells how many were written. */
MS_API void ms_decode(const ms_batch *batches, int64_t count, int64_t start_offset,
                      int64_t end_offset, ms_columns *columns, ms_fault *fault);

/* Where records lie: positions in the bytes that start at arena; a stop of -1 is null. */
typedef struct {
    int64_t *offset;
    int64_t *timestamp;
    int64_t *key_start;
    int64_t *key_stop;
    int64_t *value_start;
    int64_t *value_stop;
    int64_t *header_count;
    int64_t *header_key_start; /* of all headers, one record after the other */
    int64_t *header_key_stop;
    int64_t *header_value_start;
    int64_t *header_value_stop;
    int64_t rows;    /* capacity */
    int64_t headers; /* capacity */
} ms_cells;

/* As ms_decode, but tells where keys, values and headers lie in place of copying them. */
MS_API void ms_locate(const ms_batch *batches, int64_t count, const uint8_t *arena,
                      ms_cells *cells, ms_fault *fault);

/* Functions of the Python that calls, under their own names PyBytes_FromStringAndSize,
 * PyLong_FromLongLong, PyUnicode_DecodeUTF8, PyTuple_New, PyType_GenericAlloc, PyTuple_SetItem,
 * PyList_SetItem, Py_IncRef, Py_DecRef and PyObject_GC_UnTrack; None, and the empty tuple. */
typedef struct {
    void *(*new_bytes)(const char *data, intptr_t size);
    void *(*new_int)(long long number);
    void *(*new_text)(const char *data, intptr_t size, const char *errors);
    void *(*new_tuple)(intptr_t size);
    void *(*new_instance)(void *type, intptr_t size);
    int (*set_in_tuple)(void *tuple, intptr_t index, void *item);
    int (*set_in_list)(void *list, intptr_t index, void *item);
    void (*keep)(void *object);
    void (*drop)(void *object);
    void (*leave_out)(void *object);
    void *none;
    void *no_headers;
} ms_python;

/* Makes a tuple of type, a subclass of tuple, for each record from start_offset on and puts it into
 * the list, which has rows places: topic, partition, offset, timestamp, timestamp type, key, value,
 * headers, leader epoch. leader_epochs has one for each batch. Returns how many were made; after
 * MS_OBJECT an exception is set. The only function that must be called with the interpreter's lock.
 */
MS_API int64_t ms_records(const ms_python *python, const ms_batch *batches,
                          const int32_t *leader_epochs, int64_t count, int64_t start_offset,
                          void *type, void *topic, void *partition, void *list, int64_t rows,
                          ms_fault *fault);

/* A column of byte strings as it comes from Arrow. first is where a slice starts, in rows, in both
 * offsets and validity. Without offsets every row is null. */
typedef struct {
    const void *offsets;
    const uint8_t *data;
    const uint8_t *validity;
    int64_t data_size;
    int64_t first;
    int64_t wide; /* 1: offsets are of 64 bits */
} ms_binary_in;

/* Rows to encode. Timestamps count per_ms to a millisecond; where they are null or absent the
 * record gets default_timestamp, in milliseconds. */
typedef struct {
    int64_t rows;
    const int64_t *timestamp;
    const uint8_t *timestamp_validity;
    int64_t timestamp_first;
    int64_t timestamp_per_ms;
    int64_t default_timestamp;
    ms_binary_in key;
    ms_binary_in value;
    const void *header_offsets; /* of the list; NULL: no record has headers */
    const uint8_t *header_validity;
    int64_t header_first;
    int64_t header_wide;
    int64_t header_rows;
    ms_binary_in header_key;
    ms_binary_in header_value;
} ms_table;

/* What goes into batch headers. */
typedef struct {
    int64_t base_offset;
    int64_t producer_id;
    int64_t log_append_time; /* used when attributes say so */
    int32_t attributes;
    int32_t leader_epoch;
    int32_t producer_epoch;
    int32_t base_sequence;
    int32_t batch_bytes; /* a batch takes up to this many, and at least one record */
    int32_t checksum;    /* 0: leave the CRC, because the records are going to be compressed */
} ms_batch_options;

/* A batch that was written: bytes [position, position + size) of the output. */
typedef struct {
    int64_t position;
    int64_t size;
    int64_t count;
    int64_t base_timestamp;
    int64_t max_timestamp;
} ms_written;

/* Writes rows order[first .. last), or first .. last without order, into as many batches as fit
 * into out and written. Returns the row after the last one written, or -1 with a fault: with
 * MS_CAPACITY position tells how many bytes the first batch may need. */
MS_API int64_t ms_encode(const ms_table *table, const int64_t *order, int64_t first, int64_t last,
                         const ms_batch_options *options, uint8_t *out, int64_t out_size,
                         ms_written *written, int64_t written_capacity, int64_t *written_count,
                         ms_fault *fault);

/* The partition of each row: of keys by their hash. Rows without a key stay together: every
 * sticky_rows of them go to the next partition, beginning with sticky_partition. */
MS_API void ms_partition(const ms_binary_in *key, int64_t rows, int32_t partitions,
                         int64_t sticky_rows, int32_t sticky_partition, int32_t *out,
                         ms_fault *fault);

/* Sorts row numbers by partition, stably: order has rows entries; partition p is
 * order[bounds[p] .. bounds[p + 1]), bounds has partitions + 1 entries. */
MS_API void ms_group(const int32_t *partition, int64_t rows, int32_t partitions, int64_t *order,
                     int64_t *bounds, ms_fault *fault);

/* Byte strings that lie one after the other, a length of -1 being null. Without lengths every row
 * is null. */
typedef struct {
    const int32_t *lengths;
    const uint8_t *data;
    int64_t size;
} ms_run;

/* Writes one batch of rows whose keys, values and headers were joined: runs[0], runs[1], runs[2].
 * Headers are the end of a record as it is written, their count first; null is no headers.
 * Returns the size of the batch, or -1 with a fault. */
MS_API int64_t ms_encode_rows(const int64_t *timestamps, const ms_run *runs, int64_t rows,
                              const ms_batch_options *options, uint8_t *out, int64_t out_size,
                              ms_fault *fault);

/* Kinds of JSON values; a column may take several, and null always. */
enum {
    MS_JSON_TEXT = 1,
    MS_JSON_INTEGER = 2,  /* a number without fraction and exponent */
    MS_JSON_FRACTION = 4, /* any other number */
    MS_JSON_BOOLEAN = 8,
    MS_JSON_OBJECT = 16,
    MS_JSON_LIST = 32,
};

/* What ms_json_lines says of a value. */
enum {
    MS_LINE = 0,       /* a JSON object in UTF-8, or null */
    MS_NO_OBJECT = 1,  /* anything else, or nested too deep */
    MS_OTHER_KIND = 2, /* an object with a field of a kind that its column does not take */
};

/* The columns that fields of the outermost objects go to, by name. */
typedef struct {
    const uint8_t *names; /* one after the other */
    const int32_t *offsets;
    const uint8_t *kinds;
    const int32_t *sorted; /* the columns by their names: short ones first, then by bytes */
    int64_t count;
} ms_json_columns;

/* Writes each value that is a JSON object (RFC 8259) as a line, a null as {}, and nothing for
 * others: states tells which. Line breaks between the tokens become spaces. Lists and objects may
 * be nested most_deep deep, at most 64. Line i is [starts[i], starts[i + 1]); out has room for the
 * values and three bytes more for each. Returns the bytes written, or -1 with a fault; without one,
 * its position is how many names were looked at to find those of the fields. */
MS_API int64_t ms_json_lines(const ms_binary_in *values, int64_t rows,
                             const ms_json_columns *columns, int64_t most_deep, uint8_t *out,
                             int64_t capacity, int64_t *starts, uint8_t *states, ms_fault *fault);

#define MS_JSON_MOST_FIELDS 16

/* Copies the text of the values of some fields out of JSON objects: columns->count columns, at most
 * MS_JSON_MOST_FIELDS. That of field i in row r is at out + i * capacity, between
 * offsets[i * (rows + 1) + r] and the offset behind it, if present[i * rows + r]. Nothing is copied
 * from a row whose state is not MS_LINE: MS_NO_OBJECT as above, and for a null; MS_OTHER_KIND also
 * where an outermost name has an escape, or one of these fields is there twice. Returns rows, or -1
 * with a fault. */
MS_API int64_t ms_json_fields(const ms_binary_in *values, int64_t rows,
                              const ms_json_columns *columns, uint8_t *out, int64_t capacity,
                              int32_t *offsets, uint8_t *present, uint8_t *states, ms_fault *fault);

#endif
