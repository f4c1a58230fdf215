// The log explained, without a cluster: a look-up in a made-up log, and a model of replication to play with.

import { button, field, h, put, select } from "../dom.js";
import { drawReplicas } from "../draw-replicas.js";
import { sampleLog } from "../lookup.js";
import { heading, section } from "../page.js";
import { newModel, tick } from "../replica-model.js";
import { stepper } from "../stepper.js";

function replication(life) {
  let model = newModel();
  let producing = 3;
  let from = 0;
  let isr = "1, 2, 3";
  const drawing = h("div", { class: "drawing" });
  const story = h("div", { class: "story", "aria-live": "polite" });
  const tell = (title, text) => put(story, h("strong", null, title), text);
  const draw = () => {
    const end = Math.max(...model.replicas.map((r) => r.leo));
    if (end - from > 300) from = Math.max(0, Math.min(end - 60, ...model.replicas.map((r) => r.leo)) - 20);
    put(drawing, drawReplicas(model, from));
    const now = model.replicas.filter((r) => r.in_isr).map((r) => r.broker).join(", ");
    if (now !== isr) {
      if (now.length < isr.length) tell(`The ISR is now ${now}`, "The follower was away for longer than replica.lag.time.max.ms, so the leader had it removed. The high watermark no longer waits for it and moves on: acks=all is answered again.");
      else tell(`The ISR is now ${now}`, "The follower has caught up with the leader and is back. The high watermark waits for it again.");
      isr = now;
    }
  };
  const pauses = [2, 3].map((broker) => {
    const one = button(`Pause broker ${broker}`, () => {
      const replica = model.replicas.find((r) => r.broker === broker);
      replica.paused = !replica.paused;
      one.textContent = `${replica.paused ? "Resume" : "Pause"} broker ${broker}`;
      one.setAttribute("aria-pressed", String(replica.paused));
      if (replica.paused) tell(`Broker ${broker} is paused`, "It fetches no more. The leader still takes records, but while the broker is in the ISR the high watermark stands still at its log end: nothing after that counts as committed.");
      else tell(`Broker ${broker} goes on`, "It fetches from its log end on. Once it has caught up, it may join the ISR again.");
    }, { "aria-pressed": "false" });
    return one;
  });
  const speed = select([["0", "nothing"], ["3", "3 records a step"], ["8", "8 records a step"]], "3", (value) => { producing = Number(value); });
  const again = button("From the start", () => {
    model = newModel();
    from = 0;
    isr = "1, 2, 3";
    pauses.forEach((one, i) => { one.textContent = `Pause broker ${i + 2}`; one.setAttribute("aria-pressed", "false"); });
    tell("All in sync", "Each follower fetches what the leader has. The high watermark is the smallest log end in the ISR.");
    draw();
  });
  let timer = setInterval(() => { if (!document.hidden) { tick(model, { producing }); draw(); } }, 450);
  life.atEnd(() => { clearInterval(timer); timer = 0; });
  again.click();
  return h("div", null, h("div", { class: "tools" }, field("A producer sends", speed), pauses, again), drawing, story);
}

export function explained(main, _values, life) {
  put(main, heading("The log explained", h("span", { class: "lead" }, "A made-up log. For your own, open a topic and choose “The log” or “Replicas, live”.")),
    section("How an offset is found", "n and p step through it"), stepper(sampleLog(), life),
    section("High watermark, log ends, ISR", "a model of three replicas; pause one"), replication(life));
}
