// The drawing of a log: segments above, both indexes in the middle, batches below.

import { s } from "./dom.js";
import { bytes, count, time } from "./format.js";

const WIDTH = 960;
const LISTED = 7;

function around(length, at, room) {
  const from = Math.max(0, Math.min(length - room, Math.max(0, at) - Math.floor(room / 2)));
  return [from, Math.min(length, from + room)];
}

function segmentsRow(log, step) {
  const [from, to] = around(log.segments.length, step.segment ?? log.segments.length - 1, 8);
  const width = (WIDTH - 4) / Math.max(1, to - from);
  const parts = [s("text", { x: 2, y: 16 }, `Segments${to - from < log.segments.length ? ` (${from + 1} to ${to} of ${count(log.segments.length)})` : ""}`)];
  log.segments.slice(from, to).forEach((segment, i) => {
    const on = step.segment === from + i;
    const x = 2 + i * width;
    parts.push(s("rect", { class: `box${on ? " on" : ""}`, x, y: 26, width: width - 6, height: 44, rx: 4 }),
      s("text", { class: "code", x: x + 8, y: 45 }, `…${String(segment.base_offset).padStart(6, "0")}.log`),
      s("text", { class: "small", x: x + 8, y: 62 }, bytes(segment.size_bytes), segment.active ? " · active" : ""));
  });
  const chosen = step.segment === undefined ? null : 2 + (step.segment - from) * width + (width - 6) / 2;
  return { parts, chosen };
}

function list(title, note, entries, chosen, lit, x, width, columns) {
  const [from, to] = around(entries.length, chosen ?? 0, LISTED);
  const parts = [s("text", { x, y: 112 }, title), s("text", { class: "small", x: x + width, y: 112, "text-anchor": "end" }, note)];
  if (entries.length === 0) parts.push(s("text", { class: "small", x: x + 10, y: 138 }, "No entries yet: the segment is smaller than the interval."));
  entries.slice(from, to).forEach((entry, i) => {
    const y = 120 + i * 22;
    const on = lit && chosen === from + i;
    parts.push(s("rect", { class: `box${on ? " on" : ""}${lit ? "" : " out"}`, x, y, width, height: 20, rx: 3 }),
      s("text", { class: "code small", x: x + 10, y: y + 14 }, columns[0](entry)),
      s("text", { class: "code small", x: x + width - 10, y: y + 14, "text-anchor": "end" }, columns[1](entry)));
  });
  return parts;
}

function batchesRow(segment, step) {
  const batches = segment.batches ?? [];
  const parts = [s("text", { x: 2, y: 306 }, `${String(segment.base_offset).padStart(20, "0")}.log`), s("text", { class: "small", x: WIDTH - 2, y: 306, "text-anchor": "end" }, `${bytes(segment.size_bytes)}, batches in order of their offsets`)];
  if (batches.length === 0) {
    parts.push(s("rect", { class: "box", x: 2, y: 316, width: WIDTH - 4, height: 44, rx: 4 }));
    if (step.position !== undefined) {
      const x = 2 + (WIDTH - 4) * Math.min(1, step.position / Math.max(1, segment.size_bytes));
      parts.push(s("path", { class: "arrow", d: `M${x} 310v56` }), s("text", { class: "small", x: Math.min(x + 6, WIDTH - 120), y: 380 }, `byte ${count(step.position)}`));
    }
    return parts;
  }
  const focus = step.batch ?? Math.max(0, batches.findIndex((batch) => batch.position >= (step.position ?? 0)));
  const [from, to] = around(batches.length, focus, 24);
  const width = (WIDTH - 4) / (to - from);
  batches.slice(from, to).forEach((batch, i) => {
    const at = from + i;
    const x = 2 + i * width;
    const kind = step.batch === at ? (step.found ? "found" : "on") : "";
    parts.push(s("rect", { class: `box ${kind}`, x, y: 316, width: Math.max(2, width - 3), height: 44, rx: 3 }, s("title", null, `Offsets ${batch.first_offset} to ${batch.last_offset}, byte ${batch.position}`)));
    if (step.batch === at || batch.position === step.position) {
      parts.push(s("path", { class: "arrow", d: `M${x + width / 2} 374l-5 8h10z` }),
        s("text", { class: "small", x: Math.max(60, Math.min(WIDTH - 90, x + width / 2)), y: 398, "text-anchor": "middle" }, step.batch === at ? `offsets ${count(batch.first_offset)} to ${count(batch.last_offset)}` : `byte ${count(batch.position)}`));
    }
  });
  return parts;
}

export function drawLog(log, step) {
  const { parts, chosen } = segmentsRow(log, step);
  const segment = log.segments[step.segment ?? log.segments.length - 1];
  if (segment) {
    if (chosen !== null) parts.push(s("path", { class: "arrow", d: `M${chosen} 71V84H240V96` }));
    parts.push(...list("Offset index", "offset → byte", segment.index, step.entry, step.table === "index" || step.table === "log", 2, 470, [(e) => count(e.offset), (e) => count(e.position)]),
      ...list("Time index", "time (UTC) → offset", segment.time_index, step.timeEntry, step.table === "time", 488, 470, [(e) => time(e.timestamp), (e) => count(e.offset)]),
      ...batchesRow(segment, step));
  }
  return s("svg", { viewBox: `0 0 ${WIDTH} 408`, role: "img", "aria-label": `${step.title}. ${step.text}` }, parts);
}
