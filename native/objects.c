/* Record batches to Python's objects: one tuple for each record, made in one pass.
 *
 * The functions of the interpreter come from the caller, because the kernel is linked to none. All
 * of them are in its stable ABI. A tuple holds numbers, text, bytes and tuples of such alone, so it
 * can be in no cycle and the collector of garbage is told to leave it out.
 */
#include "kernel.h"
#include "numbers.h"
#include "record_in.h"

enum { TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS, EPOCH, FIELDS };

MS_INLINE void *share(const ms_python *python, void *object) {
    python->keep(object);
    return object;
}

MS_INLINE void *bytes_or_none(const ms_python *python, const uint8_t *data, int32_t length) {
    return length < 0 ? share(python, python->none) : python->new_bytes((const char *)data, length);
}

/* Puts an object that is this function's own into a tuple; 0 when there is none. */
MS_INLINE int put(const ms_python *python, void *tuple, int64_t field, void *object) {
    return object && python->set_in_tuple(tuple, (intptr_t)field, object) == 0;
}

/* The headers as a tuple of pairs; NULL with a code. */
static void *make_headers(const ms_python *python, const record *each, int *code) {
    const uint8_t *at = each->headers, *key, *value;
    int32_t key_length, value_length;
    void *headers = python->new_tuple(each->header_count);
    *code = MS_OBJECT;
    if (!headers) return headers;
    for (int32_t i = 0; i < each->header_count; i++) {
        at = read_header(at, each->end, &key_length, &key, &value_length, &value);
        if (!at) {
            *code = MS_HEADERS;
            break;
        }
        void *pair = python->new_tuple(2);
        if (!pair) break;
        if (!put(python, pair, 0, python->new_text((const char *)key, key_length, "replace")) ||
            !put(python, pair, 1, bytes_or_none(python, value, value_length))) {
            python->drop(pair);
            break;
        }
        if (python->set_in_tuple(headers, i, pair)) break;
        if (i + 1 == each->header_count) *code = at == each->end ? MS_OK : MS_RECORD;
    }
    if (*code == MS_OK) return headers;
    python->drop(headers);
    return (void *)0;
}

/* What the records of a batch share, and the timestamp of the last one. */
typedef struct {
    void *type;
    void *topic;
    void *partition;
    void *timestamp_type;
    void *epoch;
    void *time;
    int64_t timestamp;
} shared;

static void *make_time(const ms_python *python, shared *batch, int64_t timestamp) {
    if (!batch->time || batch->timestamp != timestamp) {
        if (batch->time) python->drop(batch->time);
        batch->timestamp = timestamp;
        batch->time = python->new_int(timestamp);
        if (!batch->time) return batch->time;
    }
    return share(python, batch->time);
}

/* One record; NULL with a code. */
static void *make_record(const ms_python *python, const ms_batch *entry, const record *each,
                         shared *batch, int *code) {
    void *headers = each->header_count ? make_headers(python, each, code)
                                       : share(python, python->no_headers);
    if (!headers) return headers;
    *code = MS_OBJECT;
    void *made = python->new_instance(batch->type, FIELDS);
    if (!made) {
        python->drop(headers);
        return made;
    }
    if (put(python, made, HEADERS, headers) &&
        put(python, made, TOPIC, share(python, batch->topic)) &&
        put(python, made, PARTITION, share(python, batch->partition)) &&
        put(python, made, OFFSET, python->new_int(offset_of(entry, each))) &&
        put(python, made, TIMESTAMP, make_time(python, batch, timestamp_of(entry, each))) &&
        put(python, made, TIMESTAMP_TYPE, share(python, batch->timestamp_type)) &&
        put(python, made, KEY, bytes_or_none(python, each->key, each->key_length)) &&
        put(python, made, VALUE, bytes_or_none(python, each->value, each->value_length)) &&
        put(python, made, EPOCH, share(python, batch->epoch))) {
        python->leave_out(made);
        *code = MS_OK;
        return made;
    }
    python->drop(made);
    return (void *)0;
}

static int64_t make_batch(const ms_python *python, const ms_batch *entry, int64_t start_offset,
                          shared *batch, void *list, int64_t row, int64_t rows, int *code) {
    const uint8_t *at = entry->records, *end = at + entry->size;
    record each;
    *code = MS_OK;
    for (int32_t left = entry->count; left > 0; left--) {
        *code = read_record(at, end, &each);
        if (MS_UNLIKELY(*code != MS_OK)) return row;
        at = each.end;
        if (MS_UNLIKELY(offset_of(entry, &each) < start_offset)) {
            if (each.header_count) *code = check_headers(&each);
            if (*code != MS_OK) return row;
            continue;
        }
        if (MS_UNLIKELY(row >= rows)) {
            *code = MS_CAPACITY;
            return row;
        }
        void *made = make_record(python, entry, &each, batch, code);
        if (MS_UNLIKELY(!made)) return row;
        if (python->set_in_list(list, (intptr_t)row, made)) {
            *code = MS_OBJECT;
            return row;
        }
        row++;
    }
    if (at != end) *code = MS_PAYLOAD;
    return row;
}

int64_t ms_records(const ms_python *python, const ms_batch *batches, const int32_t *leader_epochs,
                   int64_t count, int64_t start_offset, void *type, void *topic, void *partition,
                   void *list, int64_t rows, ms_fault *fault) {
    int64_t row = 0;
    set_fault(fault, MS_OK, 0, 0);
    for (int64_t i = 0; i < count; i++) {
        int code = MS_OBJECT;
        shared batch = {type, topic, partition, (void *)0, (void *)0, (void *)0, 0};
        batch.timestamp_type = python->new_int((batches[i].attributes & LOG_APPEND_TIME) != 0);
        batch.epoch = python->new_int(leader_epochs[i]);
        if (batch.timestamp_type && batch.epoch)
            row = make_batch(python, batches + i, start_offset, &batch, list, row, rows, &code);
        if (batch.timestamp_type) python->drop(batch.timestamp_type);
        if (batch.epoch) python->drop(batch.epoch);
        if (batch.time) python->drop(batch.time);
        if (code != MS_OK) {
            set_fault(fault, code, i, 0);
            return row;
        }
    }
    return row;
}
