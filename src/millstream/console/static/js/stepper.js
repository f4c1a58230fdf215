// The drawing of a look-up with its buttons: steps by buttons, keys, and by itself.

import { drawLog } from "./draw-log.js";
import { button, field, h, put, select } from "./dom.js";
import { count } from "./format.js";
import { stepsForOffset, stepsForTime } from "./lookup.js";
import { moment } from "./moment.js";

export function stepper(log, life, { target, wanted: ask } = {}) {
  const first = log.start_offset ?? log.segments[0]?.base_offset ?? 0;
  let at = 0;
  let timer = 0;
  let steps = [];
  const kind = select([["offset", "Offset"], ["time", "Time (UTC)"]], "offset", () => {
    const newest = log.segments.at(-1)?.time_index.at(-1) ?? log.segments.at(-2)?.time_index.at(-1);
    wanted.value = kind.value === "offset" ? String(middle) : new Date(newest?.timestamp ?? Date.now()).toISOString().slice(0, 19).replace("T", " ");
    begin();
  });
  const middle = target ?? Math.floor(first + (log.end_offset - first) * 0.62);
  const wanted = h("input", { class: "mono", size: 20, value: String(middle), "data-search": true });
  const drawing = h("div", { class: "drawing" });
  const story = h("div", { class: "story", "aria-live": "polite" });
  const where = h("span", { class: "soft" });
  const back = button("← Back", () => move(-1), { title: "Previous step (p or ←)" });
  const on = button("Next step →", () => move(1), { class: "button first", title: "Next step (n or →)" });
  const play = button("Play", () => (timer ? pause() : run()), { "aria-pressed": "false" });

  function show() {
    const step = steps[at];
    put(drawing, drawLog(log, step));
    put(story, h("strong", null, step.title), step.text);
    where.textContent = `Step ${at + 1} of ${steps.length}`;
    back.disabled = at === 0;
    on.disabled = at === steps.length - 1;
  }
  function pause() {
    clearInterval(timer);
    timer = 0;
    play.setAttribute("aria-pressed", "false");
    play.textContent = "Play";
  }
  function run() {
    if (at === steps.length - 1) at = 0;
    play.setAttribute("aria-pressed", "true");
    play.textContent = "Pause";
    timer = setInterval(() => { at < steps.length - 1 ? move(1, true) : pause(); }, 1600);
    show();
  }
  function move(by, playing = false) {
    if (!playing) pause();
    at = Math.max(0, Math.min(steps.length - 1, at + by));
    show();
  }
  function begin() {
    pause();
    const value = kind.value === "offset" ? (/^\d+$/.test(wanted.value.trim()) ? Number(wanted.value) : NaN) : moment(wanted.value);
    at = 0;
    steps = Number.isNaN(value) ? [{ title: "Not understood", table: "segments", text: kind.value === "offset" ? "An offset is a whole number such as 0." : "Write the time as 2026-01-31 12:00, in UTC." }]
      : kind.value === "offset" ? stepsForOffset(log, value) : stepsForTime(log, value);
    show();
  }
  life.atEnd(() => clearInterval(timer));
  life.keys({ step: move });
  begin();
  const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); /^\d+$/.test(wanted.value.trim()) && kind.value === "offset" && ask ? ask(Number(wanted.value)) : begin(); } },
    field("Look up by", kind), field(`Target (${count(first)} to ${count(log.end_offset - 1)})`, wanted), h("button", { class: "button", type: "submit" }, "Look up"),
    back, on, play, where);
  return h("div", null, form, drawing, story);
}
