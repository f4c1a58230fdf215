// How a log finds a record, step by step. Pure: a log in, steps out; node checks it.
//
// A log is {segments: [{base_offset, size_bytes, active, index: [{offset, position}],
// time_index: [{timestamp, offset}], batches: [{position, size_bytes, first_offset, last_offset, max_timestamp}]}], end_offset}.

/** The place of the last entry for which isAtMost holds, -1 if none; and what was compared on the way. */
export function floor(length, isAtMost) {
  const compared = [];
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const yes = isAtMost(middle);
    compared.push({ at: middle, yes });
    if (yes) low = middle + 1;
    else high = middle;
  }
  return { at: low - 1, compared };
}

const name = (offset) => String(offset).padStart(20, "0");
const n = (value) => Number(value).toLocaleString("en-US");

/** Each step says what is lit up: {title, text, segment, compared, table: "segments|index|time|log", entry, batch}. */
export function stepsForOffset(log, target, before = []) {
  const segments = log.segments;
  const steps = [...before];
  const start = log.start_offset ?? segments[0]?.base_offset ?? 0;
  if (segments.length === 0 || target < start || target >= log.end_offset) {
    return [{ title: "Out of range", table: "segments", text: segments.length === 0 ? "The log has no segments." : `The log holds offsets ${n(start)} to ${n(log.end_offset - 1)}. A consumer that asks for ${n(target)} gets OFFSET_OUT_OF_RANGE.` }];
  }
  const chosen = floor(segments.length, (at) => segments[at].base_offset <= target);
  for (const { at, yes } of chosen.compared) {
    steps.push({ title: "Which segment?", table: "segments", segment: at, trying: true,
      text: `A segment's file is named after its first offset. ${name(segments[at].base_offset)}.log begins ${yes ? `at or before ${n(target)}: it, or a later one` : `after ${n(target)}: an earlier one`}.` });
  }
  const segment = segments[chosen.at];
  steps.push({ title: "This segment", table: "segments", segment: chosen.at, text: `${name(segment.base_offset)}.log is the last one that begins at or before ${n(target)}. The names alone said so: no file was read.` });
  const index = floor(segment.index.length, (at) => segment.index[at].offset <= target);
  for (const { at, yes } of index.compared) {
    steps.push({ title: "Which index entry?", table: "index", segment: chosen.at, entry: at, trying: true,
      text: `Binary search in the offset index, which is mapped into memory. Entry ${at} is for offset ${n(segment.index[at].offset)}, ${yes ? `not beyond ${n(target)}: look to the right` : `beyond ${n(target)}: look to the left`}.` });
  }
  const position = index.at < 0 ? 0 : segment.index[index.at].position;
  steps.push({ title: "The byte position", table: "index", segment: chosen.at, entry: index.at, position,
    text: index.at < 0 ? "No entry lies at or before the offset, so the scan begins at byte 0 of the file." : `The entry says: the batch that ends with offset ${n(segment.index[index.at].offset)} begins at byte ${n(position)}. The index is sparse, so the scan begins there and not at the record.` });
  const batches = segment.batches ?? [];
  const first = batches.findIndex((batch) => batch.position >= position);
  for (let at = Math.max(0, first); first >= 0 && at < batches.length; at += 1) {
    const batch = batches[at];
    const found = batch.last_offset >= target;
    steps.push({ title: found ? "Found" : "Scan", table: "log", segment: chosen.at, entry: index.at, position, batch: at, found,
      text: found ? `The batch at byte ${n(batch.position)} holds offsets ${n(batch.first_offset)} to ${n(batch.last_offset)}. It is sent as it lies in the file; the consumer skips what comes before ${n(target)}.`
        : `The header at byte ${n(batch.position)} says: offsets ${n(batch.first_offset)} to ${n(batch.last_offset)}. Only headers are read; go on by ${n(batch.size_bytes)} bytes.` });
    if (found) break;
  }
  if (!steps.at(-1).found) {
    steps.push({ title: "Scan", table: "log", segment: chosen.at, entry: index.at, position,
      text: `From byte ${n(position)} on, the headers of batches are read until one ends at or after ${n(target)}: at most about one index interval (index.interval.bytes) of them.` });
  }
  return steps;
}

export function stepsForTime(log, timestamp) {
  const largest = (segment) => segment.time_index.at(-1)?.timestamp ?? (segment.active ? Infinity : -1);
  const at = log.segments.findIndex((segment) => segment.active || largest(segment) >= timestamp);
  if (at < 0) return [{ title: "Not there", table: "segments", text: "Every record is older than that." }];
  const segment = log.segments[at];
  const time = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", "");
  const found = floor(segment.time_index.length, (entry) => segment.time_index[entry].timestamp <= timestamp);
  const from = found.at < 0 ? segment.base_offset : segment.time_index[found.at].offset;
  return stepsForOffset(log, from, [
    { title: "Which segment, by time?", table: "segments", segment: at, text: "Segments are asked in order for their largest timestamp: the last entry of the time index. The first that reaches the time is taken." },
    { title: "The time index", table: "time", segment: at, timeEntry: found.at,
      text: found.at < 0 ? `Every entry is later, so the segment is read from its first offset ${n(from)}.` : `The last entry that is not later is ${time(segment.time_index[found.at].timestamp)}, for offset ${n(from)}. That offset is looked up next; the scan then goes on until a record is at or after the time.` },
  ]);
}

/** A made-up log, small enough to be drawn whole. */
export function sampleLog() {
  const segments = [];
  let offset = 0;
  let clock = Date.UTC(2026, 0, 31, 9);
  for (let at = 0; at < 5; at += 1) {
    const segment = { base_offset: offset, size_bytes: 0, active: at === 4, index: [], time_index: [], batches: [] };
    for (let b = 0; b < (at === 4 ? 14 : 24); b += 1) {
      const records = 3 + ((b * 7 + at * 5) % 6);
      const batch = { position: segment.size_bytes, size_bytes: 61 + records * 190, first_offset: offset, last_offset: offset + records - 1, max_timestamp: clock };
      if (b > 0 && b % 4 === 0) {
        segment.index.push({ offset: batch.last_offset, position: batch.position });
        segment.time_index.push({ timestamp: clock, offset: batch.last_offset });
      }
      segment.batches.push(batch);
      segment.size_bytes += batch.size_bytes;
      offset += records;
      clock += 41_000;
    }
    segments.push(segment);
  }
  return { segments, end_offset: offset, sample: true };
}
