/* Messages of random tables for the codec in C: bytes and values that lie, and an interpreter that
 * counts its objects and runs out of memory now and then, all under the sanitizers.
 *
 *     hostile_codec SEED ROUNDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/codec.h"

static uint64_t state;

static uint32_t chance(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

/* An object; its slots lie behind it, and the second word is its type. */
typedef struct object {
    int64_t references;
    struct object *type;
    int64_t size;
    int64_t number;
    char *data;
    struct object **items;
    struct object *slots[12];
} object;

enum { SLOTS = 12 };

static int64_t living;
static int fails, failed;
static object types[8], none, yes, no;
#define INT (types + 0)
#define TEXT (types + 1)
#define BYTES (types + 2)
#define BYTEARRAY (types + 3)
#define LIST (types + 4)
#define TUPLE (types + 5)
#define VIEW (types + 6)
#define OTHER (types + 7)

static void *make(object *type, int64_t size, const void *data) {
    if (size < 0 || size > 1 << 20) exit(4); /* claimed and never there */
    if (fails && !chance(200)) {
        failed = 1;
        return NULL;
    }
    object *made = calloc(1, sizeof *made);
    if (!made) exit(2);
    made->references = 1;
    made->type = type;
    made->size = size;
    if (data) {
        made->data = malloc((size_t)size + 1);
        if (!made->data) exit(2);
        memcpy(made->data, data, (size_t)size);
        made->data[size] = 0;
    }
    living++;
    return made;
}

static void keep(void *each) { ((object *)each)->references++; }

static void drop(void *each) {
    object *gone = each;
    if (--gone->references) return;
    if (gone >= types && gone < types + 8) exit(5);
    for (int64_t i = 0; gone->items && i < gone->size; i++)
        if (gone->items[i]) drop(gone->items[i]);
    for (int i = 0; i < SLOTS; i++)
        if (gone->slots[i]) drop(gone->slots[i]);
    free(gone->items);
    free(gone->data);
    free(gone);
    living--;
}

static void *sequence(object *type, intptr_t size) {
    object *made = make(type, size, NULL);
    if (made && !(made->items = calloc((size_t)size + 1, sizeof *made->items))) exit(2);
    return made;
}

static void *new_instance(void *type, intptr_t size) {
    if (size) exit(6);
    return make(type, 0, NULL);
}
static void *new_int(long long number) {
    object *made = make(INT, 0, NULL);
    if (made) made->number = number;
    return made;
}
static void *new_float(double number) {
    (void)number;
    return make(OTHER, 0, NULL);
}
static void *new_text(const char *data, intptr_t size, const char *errors) {
    if (errors) exit(7);
    if (!chance(50)) {
        failed = 1;
        return NULL;
    }
    return make(TEXT, size, data);
}
static void *new_bytes(const char *data, intptr_t size) { return make(BYTES, size, data); }
static void *new_list(intptr_t size) { return sequence(LIST, size); }
static void *new_tuple(intptr_t size) { return sequence(TUPLE, size); }
static void *new_view(void *of) { return make(VIEW, ((object *)of)->size, ((object *)of)->data); }
static void *new_slice(void *start, void *stop, void *step) {
    object *made = sequence(TUPLE, 2);
    if (step != &none) exit(8);
    if (!made) return made;
    keep(made->items[0] = start);
    keep(made->items[1] = stop);
    return made;
}
static void *item(void *view, void *slice) {
    object *of = view, **bounds = ((object *)slice)->items;
    int64_t start = bounds[0]->number, stop = bounds[1]->number;
    if (start < 0 || stop < start || stop > of->size) exit(9);
    return make(VIEW, stop - start, of->data + start);
}
static void *new_capsule(void *pointer, const char *name, void *destructor) {
    if (destructor || strcmp(name, "millstream.codec")) exit(10);
    object *made = make(OTHER, 0, NULL);
    if (made) made->number = (int64_t)(intptr_t)pointer;
    return made;
}
static void *new_function(void *definition, void *self, void *module) {
    object *made = make(OTHER, 0, NULL);
    if (module || !made) return made;
    made->number = (int64_t)(intptr_t)definition;
    keep(made->slots[0] = self);
    return made;
}
static void *capsule_pointer(void *capsule, const char *name) {
    return name ? (void *)(intptr_t)((object *)capsule)->number : NULL;
}
static int set_item(void *into, intptr_t index, void *value) {
    object *to = into;
    if (index < 0 || index >= to->size || to->items[index]) exit(11);
    to->items[index] = value;
    return 0;
}
static int append(void *list, void *value) {
    object *to = list;
    to->items = realloc(to->items, ((size_t)to->size + 1) * sizeof *to->items);
    if (!to->items) exit(2);
    keep(to->items[to->size++] = value);
    return 0;
}
static void *item_at(void *of, intptr_t index) {
    object *from = of;
    if (index < 0 || index >= from->size) exit(12);
    return from->items[index];
}
static intptr_t size_of(void *of) {
    failed |= ((object *)of)->type == INT;
    return ((object *)of)->type == INT ? -1 : ((object *)of)->size;
}
static void *call(void *function, void *arguments) {
    if (function != OTHER || ((object *)arguments)->type != TUPLE) exit(13);
    keep(&none);
    return &none;
}
static long long as_int(void *of, int *overflow) {
    object *from = of;
    *overflow = 0;
    if (from->type == INT) return from->number;
    failed = 1;
    return -1;
}
static double as_float(void *of) {
    if (((object *)of)->type == OTHER) return 1.5;
    failed = 1;
    return -1.0;
}
static const char *as_text(void *text, intptr_t *size) {
    *size = ((object *)text)->size;
    return ((object *)text)->data;
}
static char *as_bytes(void *bytes) { return ((object *)bytes)->data; }
static int is_true(void *of) { return ((object *)of)->size || ((object *)of)->number; }
static int compare(void *one, void *other, int operation) {
    if (operation != PY_NE) exit(14);
    return one != other && (chance(40) ? 1 : (failed = 1, -1));
}
static int get_buffer(void *of, void *view, int flags) {
    object *from = of;
    py_buffer *to = view;
    if (flags) exit(15);
    if (!from->data) return failed = 1, -1;
    to->buf = from->data;
    to->len = from->size;
    keep(to->obj = from);
    return 0;
}
static void release_buffer(void *view) { drop(((py_buffer *)view)->obj); }
static void *error(void) { return failed ? &none : NULL; }
static void clear_error(void) { failed = 0; }
static int is_error(void *kinds) {
    if (kinds != LIST || !failed) exit(20);
    return chance(10) != 0;
}

static const ms_interpreter interpreter = {
    new_instance, new_int, new_float, new_text, new_bytes, new_list, new_tuple, new_view, new_slice,
    new_function, new_capsule, capsule_pointer, set_item, set_item, append, item_at, item_at, item,
    size_of, call, as_int, as_float, as_text, as_bytes, is_true, compare, get_buffer,
    release_buffer, keep, drop, error, clear_error, is_error, &none, &yes, &no, INT, TEXT, BYTES, BYTEARRAY,
    LIST, TUPLE, VIEW, LIST,
};

/* Tables, of structs in structs; all of them live to the end of a round. */
static void *rooms[4000];
static int room_count;

static void *room(size_t bytes) {
    void *made = calloc(1, bytes ? bytes : 1);
    if (!made || room_count == 4000) exit(2);
    return rooms[room_count++] = made;
}

static ms_struct *some_struct(int depth, int flexible);

static void some_field(ms_field *field, int slot, int depth, int flexible, int tagged) {
    field->kind = (int32_t)chance(depth ? 14 : 12);
    while (tagged && field->kind >= MS_RECORDS) field->kind = (int32_t)chance(MS_RECORDS);
    field->slot = (int32_t)(offsetof(object, slots) + sizeof(void *) * (size_t)(slot < 0 ? 0 : slot));
    field->nullable = (int32_t)chance(2);
    field->tag = -1;
    field->differs = (int32_t)chance(4);
    field->smallest = 1;
    field->default_value = field->kind == MS_ARRAY && chance(2) ? NULL : &none;
    if (!field->default_value) field->differs = MS_IF_TRUE;
    if (field->kind == MS_STRUCT || (field->kind == MS_ARRAY && chance(2)))
        field->structure = some_struct(depth - 1, flexible);
    else if (field->kind == MS_ARRAY) {
        ms_field *element = room(sizeof *element);
        do some_field(element, -1, 0, flexible, 0);
        while (element->kind == MS_RECORDS);
        field->element = element;
    }
}

static ms_struct *some_struct(int depth, int flexible) {
    ms_struct *made = room(sizeof *made);
    ms_field *fields = room(SLOTS * sizeof *fields), *tagged = fields + 5, *others = fields + 7;
    made->type = OTHER;
    made->fields = fields;
    made->field_count = (int32_t)chance(6);
    for (int i = 0; i < made->field_count; i++) some_field(fields + i, i, depth, flexible, 0);
    made->tagged = tagged;
    made->tagged_count = flexible ? (int32_t)chance(3) : 0;
    for (int i = 0; i < made->tagged_count; i++) {
        some_field(tagged + i, 5 + i, 0, flexible, 1);
        tagged[i].tag = i;
        others[i] = tagged[i];
    }
    made->others = others;
    made->other_count = made->tagged_count + (int32_t)chance(2);
    if (made->other_count > made->tagged_count) {
        some_field(others + made->tagged_count, 9, 0, flexible, 1);
        made->checked = others + made->tagged_count;
        made->checked_count = (int32_t)chance(2);
    }
    made->flexible = flexible;
    return made;
}

static object *ask(void *function, object **arguments, intptr_t count) {
    const py_method *method = (const py_method *)(intptr_t)((object *)function)->number;
    if (method->flags != PY_FASTCALL) exit(16);
    return method->call(((object *)function)->slots[0], (void *const *)arguments, count);
}

static object *some_bytes(const object *like) {
    uint8_t data[600];
    int64_t size = chance(300);
    for (int64_t i = 0; i < size; i++)
        data[i] = (uint8_t)(chance(3) ? chance(4) : chance(5) ? chance(256) : 0xFF);
    if (like && chance(5)) {
        size = like->size < 500 ? like->size : 500;
        memcpy(data, like->data, (size_t)size);
        for (uint32_t i = chance(3); i && size; i--) data[chance((uint32_t)size)] ^= (uint8_t)(1 << chance(8));
        if (!chance(3)) size = chance((uint32_t)size + 1);
    }
    return make(chance(2) ? VIEW : BYTES, size, data);
}

/* Puts something else into a place of a message. */
static void spoil(object *message) {
    object *strange[] = {make(INT, 0, NULL), make(TEXT, 3, "abc"), sequence(LIST, 2), make(OTHER, 0, NULL)};
    uint32_t chosen = chance(5), slot = chance(SLOTS);
    strange[0]->number = chance(2) ? INT64_MIN : chance(1 << 30);
    strange[2]->items[0] = &none;
    strange[2]->items[1] = &none;
    none.references += 2;
    if (message->slots[slot]) drop(message->slots[slot]);
    message->slots[slot] = NULL;
    for (uint32_t i = 0; i < 4; i++)
        if (i == chosen)
            message->slots[slot] = strange[i];
        else
            drop(strange[i]);
}

static int64_t decoded, encoded;

static void take(object *answer, int64_t *count) {
    if (answer && answer != &none) ++*count;
    if (answer) drop(answer);
    failed = 0;
}

static void one_round(void) {
    int flexible = (int)chance(2);
    ms_codec codec = {some_struct(3, flexible), OTHER, chance(4) ? 1000 : chance(5), OTHER,
                      (int32_t)offsetof(object, slots),
                      (int32_t)(offsetof(object, slots) + sizeof(void *)), 20, flexible, 3, 9};
    object *functions[6], *before = NULL;
    fails = 0;
    for (int i = 0; i < 6; i++) functions[i] = ms_codec_function(i, &codec);
    for (int turn = 0; turn < 60; turn++) {
        fails = 0;
        object *bytes = some_bytes(before), *zero = new_int(0), *limit = new_int(chance(2) ? chance(1000) : INT64_C(1) << 40);
        object *decode[] = {bytes, zero, limit}, *message;
        zero->number = chance(10) ? 0 : (int64_t)chance(400) - 50;
        fails = !chance(3);
        take(ask(functions[MS_DECODE], decode, 3), &decoded);
        take(ask(functions[MS_DECODE_RESPONSE], decode, 1), &decoded);
        message = ask(functions[MS_DECODE_REQUEST], decode, 2);
        failed = 0;
        if (message && message != &none) {
            fails = 0;
            if (!chance(3)) spoil(message);
            fails = !chance(3);
            object *request[] = {message, zero, &none}, *response[] = {zero, message};
            take(ask(functions[MS_ENCODE_REQUEST], request, 3), &encoded);
            take(ask(functions[MS_ENCODE_RESPONSE], response, 2), &encoded);
            object *pieces = ask(functions[MS_ENCODE], request, 1);
            failed = 0;
            if (pieces && pieces != &none && pieces->size && pieces->items[0]->size) {
                if (before) drop(before);
                keep(before = pieces->items[0]);
            }
            take(pieces, &encoded);
        }
        if (message) drop(message);
        drop(bytes);
        drop(zero);
        drop(limit);
    }
    if (before) drop(before);
    for (int i = 0; i < 6; i++) drop(functions[i]);
    if (living) {
        fprintf(stderr, "%lld objects are left\n", (long long)living);
        exit(17);
    }
    while (room_count) free(rooms[--room_count]);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    state = strtoull(arguments[1], NULL, 10);
    none.references = yes.references = no.references = 1;
    for (int i = 0; i < 8; i++) types[i].references = 1;
    none.type = OTHER;
    yes.type = no.type = INT;
    ms_codec_begin(&interpreter);
    for (long rounds = strtol(arguments[2], NULL, 10); rounds > 0; rounds--) one_round();
    if (none.references != 1 || yes.references != 1 || no.references != 1) return 18;
    for (int i = 0; i < 8; i++)
        if (types[i].references != 1) return 19;
    return decoded > 100 && encoded > 100 ? 0 : 3;
}
