// The replicas of one partition, live: log ends, high watermark, ISR.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { count } from "../format.js";
import { cards } from "../page.js";
import { drawReplicas } from "../draw-replicas.js";
import { partitionChoice } from "./log.js";

const SPAN = 400;

export function replicasTab(place, { topic, query }, life) {
  const partition = query.partition ?? "0";
  const rows = h("div");
  const numbers = h("div");
  const drawing = h("div", { class: "drawing" });
  const story = h("div", { class: "story" });
  let from = null;
  let isr = null;
  const known = new Map();
  put(place, partitionChoice(topic, "replicas", partition), rows);
  life.load(rows, (signal) => api.replicas(topic, partition, signal), (answer) => {
    // Of a broker that does not answer, what it had last stays in the drawing.
    for (const replica of answer.replicas) {
      if (replica.leo !== null) known.set(replica.broker, replica.leo);
      else if (known.has(replica.broker)) Object.assign(replica, { leo: known.get(replica.broker), silent: true });
    }
    const ends = answer.replicas.map((r) => r.leo).filter((leo) => leo !== null && leo !== undefined);
    const low = Math.min(...ends, answer.high_watermark ?? Infinity);
    const high = Math.max(...ends, 0);
    // The left edge moves only when it must, so that the bars do not jump.
    if (from === null || high - from > 4 * SPAN || low < from) from = Math.max(0, Math.min(low, high - SPAN / 2) - SPAN / 4);
    const now = answer.isr.join(", ");
    const left = isr === null ? [] : isr.filter((id) => !answer.isr.includes(id));
    const joined = isr === null ? [] : answer.isr.filter((id) => !isr.includes(id));
    if (isr === null || left.length || joined.length) {
      put(story, h("strong", null, `ISR: ${now}`), left.length ? `Broker ${left.join(", ")} fell behind and left. The high watermark no longer waits for it.`
        : joined.length ? `Broker ${joined.join(", ")} has caught up and is back.` : "The high watermark is the smallest log end of the replicas in the ISR. Consumers read up to it. Pause a follower and watch it stop, until the follower leaves the ISR.");
    }
    isr = answer.isr;
    put(numbers, cards([["Leader", answer.leader === null || answer.leader < 0 ? "none" : `broker ${answer.leader}`], ["Leader epoch", answer.leader_epoch ?? "–"], ["High watermark", count(answer.high_watermark)], ["ISR", now || "empty"]]));
    put(drawing, drawReplicas(answer, from));
    if (!drawing.isConnected) put(rows, numbers, drawing, story);
  }, { every: 1000 });
}
