/* An interpreter of which the objects are counted, and which runs out of memory now and then. */
#include "../../native/kernel.h"

typedef struct fake {
    int64_t references;
    int64_t size;
    struct fake *items[];
} fake;

static int64_t living;
static int fails;

static void *fake_new(int64_t size) {
    if (fails && !draw(60)) return NULL;
    fake *made = room((int64_t)sizeof(fake) + 8 * size);
    memset(made, 0, sizeof(fake) + 8 * (size_t)size);
    made->references = 1;
    made->size = size;
    living++;
    return made;
}

static void fake_keep(void *object) { ((fake *)object)->references++; }

static void fake_drop(void *object) {
    fake *each = object;
    if (--each->references) return;
    for (int64_t i = 0; i < each->size; i++)
        if (each->items[i]) fake_drop(each->items[i]);
    free(each);
    living--;
}

static void *fake_bytes(const char *data, intptr_t size) {
    volatile char sum = 0;
    for (intptr_t i = 0; i < size; i++) sum ^= data[i];
    return fake_new(0);
}

static void *fake_text(const char *data, intptr_t size, const char *errors) {
    if (strcmp(errors, "replace")) exit(4);
    return fake_bytes(data, size);
}

static void *fake_int(long long number) {
    (void)number;
    return fake_new(0);
}

static void *fake_tuple(intptr_t size) { return fake_new(size); }

static void *fake_instance(void *type, intptr_t size) {
    (void)type;
    return fake_new(size);
}

static int fake_set(void *sequence, intptr_t index, void *item) {
    fake *into = sequence;
    if (index < 0 || index >= into->size) exit(5);
    if (into->items[index]) fake_drop(into->items[index]);
    into->items[index] = item;
    return 0;
}

static void fake_leave_out(void *object) {
    for (int64_t i = 0; i < ((fake *)object)->size; i++)
        if (!((fake *)object)->items[i]) exit(6);
}

/* Makes records of batches; every object must be gone in the end. */
static void objects(const ms_batch *batches, int64_t count, int64_t start, int64_t rows) {
    fails = 0;
    fake *none = fake_new(0), *empty = fake_new(0), *topic = fake_new(0), *list = fake_new(rows);
    int32_t *epochs = room(4 * count);
    ms_python python = {fake_bytes, fake_int,  fake_text, fake_tuple,     fake_instance, fake_set,
                        fake_set,   fake_keep, fake_drop, fake_leave_out, none,          empty};
    ms_fault fault;
    fails = !draw(2);
    int64_t made = ms_records(&python, batches, epochs, count, start, topic, topic, topic, list,
                              rows, &fault);
    told[fault.code]++;
    for (int64_t i = 0; i < rows; i++)
        if ((list->items[i] != NULL) != (i < made)) exit(7);
    fake_drop(list);
    if (none->references != 1 || empty->references != 1 || topic->references != 1) exit(8);
    fake_drop(none);
    fake_drop(empty);
    fake_drop(topic);
    free(epochs);
    if (living) {
        fprintf(stderr, "%lld objects are left\n", (long long)living);
        exit(9);
    }
}
