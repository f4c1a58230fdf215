/* Checks many batches in a row and notes what recovery and followers have to know of them. See scan.h. */
#include "scan.h"
#include "numbers.h"

#define HEADER_SIZE 61
#define LENGTH_OVERHEAD 12
#define ATTRIBUTES 21
#define MAGIC 2
#define TRANSACTIONAL 0x10
#define CONTROL 0x20

int32_t ms_scan_abi(void) { return MS_SCAN_ABI; }

/* The row of a producer, or the free slot that names the one it would get. */
MS_INLINE uint32_t *find_slot(const ms_scan *scan, int64_t producer_id) {
    uint32_t mask = (uint32_t)((UINT64_C(1) << scan->slot_bits) - 1);
    uint64_t mixed = (uint64_t)producer_id * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t slot = (uint32_t)(mixed >> (64 - scan->slot_bits));
    for (;; slot = (slot + 1) & mask) {
        uint32_t row = scan->slots[slot];
        if (row == 0 || scan->producers[row - 1].producer_id == producer_id)
            return scan->slots + slot;
    }
}

static void note_producer(ms_scan *scan, int64_t producer_id, int attributes, int64_t at) {
    uint32_t *slot = find_slot(scan, producer_id);
    ms_producer_batches *row = *slot ? scan->producers + (*slot - 1) : (ms_producer_batches *)0;
    if (attributes & CONTROL) {
        scan->marks[scan->mark_count++] = at;
        if (row) row->in_transaction = 0;
        return;
    }
    if (!row) {
        row = scan->producers + scan->producer_count++;
        *slot = (uint32_t)scan->producer_count;
        row->producer_id = producer_id;
        row->batches = 0;
        row->in_transaction = 0;
    }
    row->places[row->batches++ % MS_BATCHES_KEPT] = at;
    if (attributes & TRANSACTIONAL && !row->in_transaction) {
        row->in_transaction = 1;
        scan->marks[scan->mark_count++] = at;
    }
}

MS_INLINE int is_full(const ms_scan *scan) {
    return scan->entry_count >= scan->capacity || scan->epoch_count >= scan->capacity ||
           scan->mark_count >= scan->capacity || scan->producer_count >= scan->capacity;
}

/* Where the batch at data[at] ends; 0 when it is not whole, not sound, or does not belong here. */
MS_INLINE int64_t end_of_batch(const ms_scan *scan, const uint8_t *data, int64_t size, int64_t at) {
    const uint8_t *header = data + at;
    int64_t base_offset = (int64_t)get_u64(header);
    int64_t length = (int32_t)get_u32(header + 8);
    int64_t epoch = (int32_t)get_u32(header + 12);
    int64_t delta = (int32_t)get_u32(header + 23);
    int32_t count = (int32_t)get_u32(header + 57);
    if (header[16] != MAGIC || length < HEADER_SIZE - LENGTH_OVERHEAD) return 0;
    if (length + LENGTH_OVERHEAD > size - at) return 0;
    if (base_offset < 0 || (uint64_t)base_offset < scan->next_offset) return 0;
    if (delta < 0 || count < 0 || base_offset > scan->max_offset - delta) return 0;
    if (scan->epochs_grow && epoch >= 0 && epoch < scan->latest_epoch) return 0;
    int64_t covered = length + LENGTH_OVERHEAD - ATTRIBUTES;
    if (ms_crc32c(0, header + ATTRIBUTES, covered) != get_u32(header + 17)) return 0;
    return at + length + LENGTH_OVERHEAD;
}

int64_t ms_scan_batches(ms_scan *scan, const uint8_t *data, int64_t size, int64_t position) {
    int64_t at = 0;
    scan->entry_count = scan->epoch_count = scan->mark_count = scan->producer_count = 0;
    scan->is_full = 0;
    for (int64_t n = 0; n < INT64_C(1) << scan->slot_bits; n++) scan->slots[n] = 0;
    while (size - at >= HEADER_SIZE) {
        if (is_full(scan)) {
            scan->is_full = 1;
            break;
        }
        int64_t end = end_of_batch(scan, data, size, at);
        if (end == 0) break;
        const uint8_t *header = data + at;
        int64_t base_offset = (int64_t)get_u64(header);
        int64_t last_offset = base_offset + (int32_t)get_u32(header + 23);
        int64_t epoch = (int32_t)get_u32(header + 12);
        int64_t timestamp = (int64_t)get_u64(header + 35);
        int64_t producer_id = (int64_t)get_u64(header + 43);
        if (epoch > scan->latest_epoch) {
            scan->latest_epoch = epoch;
            scan->epochs[scan->epoch_count++] = (ms_epoch_start){epoch, base_offset};
        }
        if (timestamp > scan->largest_timestamp) {
            scan->largest_timestamp = timestamp;
            scan->offset_of_largest = last_offset;
        }
        if (scan->unindexed_bytes > scan->interval_bytes) {
            scan->entries[scan->entry_count++] =
                (ms_index_entry){last_offset, position + at, scan->largest_timestamp,
                                 scan->offset_of_largest};
            scan->unindexed_bytes = 0;
        }
        if (producer_id >= 0 && base_offset >= scan->producers_from)
            note_producer(scan, producer_id, header[ATTRIBUTES + 1], at);
        scan->unindexed_bytes += end - at;
        scan->next_offset = (uint64_t)last_offset + 1;
        at = end;
    }
    return at;
}
