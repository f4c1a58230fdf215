// The drawing of a partition's replicas: how far each log reaches (LEO), what is committed (HW), who is in sync.
// Colours: teal is a log that is in sync, amber one that is not, violet the high watermark.

import { s } from "./dom.js";
import { count } from "./format.js";

const WIDTH = 960;
const LEFT = 150;
const RIGHT = 120;
const ROW = 58;

/** state: {leader, high_watermark, isr, replicas: [{broker, leo, in_isr, lag}]}; from: the offset at the left edge. */
export function drawReplicas(state, from) {
  const height = 74 + state.replicas.length * ROW;
  const end = Math.max(from + 10, ...state.replicas.map((r) => r.leo ?? 0));
  const scale = (offset) => LEFT + (WIDTH - LEFT - RIGHT) * Math.max(0, Math.min(1, (offset - from) / (end - from)));
  const parts = [];
  const hw = state.high_watermark;
  state.replicas.forEach((replica, i) => {
    const y = 46 + i * ROW;
    const slow = replica.in_isr ? "" : " slow";
    parts.push(s("text", { x: 2, y: y + 15 }, `Broker ${replica.broker}`),
      s("text", { class: "small", x: 2, y: y + 31 }, replica.broker === state.leader ? "leads" : replica.in_isr ? "in the ISR" : "not in the ISR"),
      s("path", { class: "rule", d: `M${LEFT} ${y + 36.5}H${WIDTH - RIGHT}` }));
    if (replica.leo === null || replica.leo === undefined) {
      parts.push(s("text", { class: "small", x: LEFT, y: y + 20 }, "does not answer"));
      return;
    }
    const committed = Math.min(replica.leo, hw ?? replica.leo);
    const x = scale(replica.leo);
    parts.push(s("rect", { class: `bar-log${slow}`, x: LEFT, y: y + 2, height: 28, rx: 3, width: Math.max(2, scale(committed) - LEFT) }),
      s("rect", { class: `bar-open${slow}`, x: scale(committed), y: y + 2, height: 28, width: Math.max(0, x - scale(committed)) }),
      s("text", { class: "code", x: x + 8, y: y + 15 }, count(replica.leo)),
      s("text", { class: "small", x: x + 8, y: y + 29 }, replica.silent ? "last seen; no answer" : replica.broker === state.leader ? "LEO" : replica.lag > 0 ? `LEO, ${count(replica.lag)} behind` : "LEO, caught up"));
  });
  if (hw !== null && hw !== undefined) {
    const x = scale(hw);
    parts.push(s("path", { class: "hw", d: `M${x} 30V${height - 26}` }),
      s("text", { class: "hw-text", x: Math.max(LEFT + 60, x), y: 20, "text-anchor": x > WIDTH / 2 ? "end" : "middle" }, `High watermark ${count(hw)}`));
  }
  parts.push(s("text", { class: "small", x: LEFT, y: height - 8 }, `offset ${count(from)}`),
    s("text", { class: "small", x: WIDTH - RIGHT, y: height - 8, "text-anchor": "end" }, `offset ${count(end)}`));
  return s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img",
    "aria-label": `High watermark ${hw}. ${state.replicas.map((r) => `Broker ${r.broker}: log end ${r.leo ?? "unknown"}, ${r.in_isr ? "in sync" : "not in sync"}`).join(". ")}.` }, parts);
}
