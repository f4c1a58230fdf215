// The files of one partition's log, and how a look-up goes through them.

import * as api from "../api.js";
import { field, h, put } from "../dom.js";
import { go, link, note } from "../router.js";
import { stepper } from "../stepper.js";

export function partitionChoice(topic, tab, partition) {
  const input = h("input", { class: "mono", size: 6, inputmode: "numeric", value: partition });
  return h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); go(["topics", topic, tab], { partition: input.value }); } },
    field("Partition", input), h("button", { class: "button", type: "submit" }, "Show"));
}

export function logTab(place, { topic, query }, life) {
  const partition = query.partition ?? "0";
  const rows = h("div");
  put(place, partitionChoice(topic, "log", partition), rows,
    h("p", { class: "section soft" }, h("span", null, "No log directory at hand? ", h("a", { href: link(["explained"]) }, "The log explained"), " draws a made-up one.")));
  // Only the segment near the offset comes with its batches, so another offset is asked for again.
  const show = (offset) => life.load(rows, (signal) => api.log(topic, partition, { offset }, signal), (answer) => {
    const target = offset === undefined ? Math.max(answer.start_offset, answer.end_offset - 100) : Number(offset);
    put(rows, stepper(answer, life, { target, wanted: (next) => { note(["topics", topic, "log"], { partition, offset: next }); show(next); } }));
  });
  show(query.offset);
}
