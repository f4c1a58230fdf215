// One group: its members, what they read, how far behind they are, and a reset with a plan.

import * as api from "../api.js";
import { button, field, h, put, say, select } from "../dom.js";
import { count, seconds } from "../format.js";
import { moment } from "../moment.js";
import { cards, empty, failureBox, heading, section } from "../page.js";
import { link } from "../router.js";
import { state } from "../state.js";
import { Table } from "../table.js";
import { stateTag } from "./groups.js";

const OFFSETS = [
  { name: "topic", label: "Topic", width: "2fr", text: (o) => o.topic, show: (o) => h("a", { href: link(["topics", o.topic]), tabindex: -1 }, o.topic) },
  { name: "partition", label: "Part.", width: "64px", right: true, text: (o) => o.partition },
  { name: "committed", label: "Committed", width: "110px", right: true, wide: true, text: (o) => o.committed, show: (o) => count(o.committed) },
  { name: "end", label: "End offset", width: "110px", right: true, wide: true, text: (o) => o.end_offset, show: (o) => count(o.end_offset) },
  { name: "lag", label: "Lag", width: "90px", right: true, text: (o) => o.lag, show: (o) => h("span", { class: o.lag > 0 ? "warn-text" : "" }, count(o.lag)) },
  { name: "seconds", label: "Lag, in time", width: "110px", right: true, text: (o) => o.lag_seconds, show: (o) => seconds(o.lag_seconds) },
  { name: "member", label: "Read by", width: "2fr", wide: true, mono: true, text: (o) => o.member },
];

// A share group has no offset of a member, and nothing that it has read up to: only where it starts.
const STARTS = OFFSETS.filter(({ name }) => name !== "seconds").map((column) => (column.name === "committed" ? { ...column, label: "Start", wide: false } : column));

function reads(member) {
  const topics = new Map();
  for (const { topic, partition } of member.assignment ?? []) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
  return [...topics].map(([topic, partitions]) => `${topic}: ${partitions.sort((a, b) => a - b).join(", ")}`).join(" · ") || "nothing";
}

const MEMBERS = [
  { name: "client", label: "Client", width: "1fr", text: (m) => m.client },
  { name: "host", label: "Host", width: "1fr", wide: true, mono: true, text: (m) => m.host },
  { name: "member", label: "Member", width: "2fr", wide: true, mono: true, text: (m) => m.member },
  { name: "reads", label: "Reads partitions", width: "3fr", text: reads },
];

const PLAN = [
  { name: "topic", label: "Topic", text: (p) => p.topic, width: "2fr" }, { name: "partition", label: "Part.", width: "60px", right: true, text: (p) => p.partition },
  { name: "current", label: "Now", width: "90px", right: true, text: (p) => p.current, show: (p) => count(p.current) },
  { name: "new", label: "Then", width: "90px", right: true, text: (p) => p.new, show: (p) => count(p.new) },
];

function resetDialog(name, topics, done) {
  const topic = select(topics.map((value) => [value, value]), topics[0], () => stale());
  const at = h("input", { class: "mono", oninput: () => stale() });
  const atField = field("Offset, or time in UTC", at);
  const to = select([["earliest", "The oldest record"], ["latest", "The end"], ["offset", "An offset"], ["time", "A time"]], "earliest", () => stale());
  const place = h("div");
  const execute = button("Reset", () => run(true), { disabled: true, class: "button danger" });
  let table = null;
  function stale() {
    execute.disabled = true;
    atField.hidden = to.value !== "offset" && to.value !== "time";
    put(place);
  }
  async function run(real) {
    execute.disabled = true;
    try {
      const value = to.value === "time" ? moment(at.value) : to.value === "offset" ? Number(at.value || NaN) : null;
      if (Number.isNaN(value)) throw new api.Failure("This is neither an offset nor a time.", at.value || "(empty)", "Write a number, or 2026-01-31 12:00.");
      const answer = await api.reset(name, { topic: topic.value, to: to.value, value, execute: real });
      if (real) { say("Reset"); dialog.close(); done(); return; }
      table?.close();
      table = new Table({ label: "The plan", noun: "partition", columns: PLAN, key: (p) => p.partition, height: "240px" });
      put(place, table.element);
      table.set(answer.plan);
      execute.disabled = answer.plan.length === 0;
    } catch (error) { put(place, failureBox(error)); }
  }
  const dialog = h("dialog", { "aria-labelledby": "reset-title", onclose: () => { table?.close(); dialog.remove(); } },
    h("h2", { id: "reset-title" }, "Reset offsets of ", name),
    h("form", { onsubmit: (event) => { event.preventDefault(); run(false); } },
      field("Topic", topic), field("To", to), atField, place,
      h("div", { class: "end" }, button("Cancel", () => dialog.close()), h("button", { class: "button", type: "submit" }, "Show the plan"), execute)));
  stale();
  document.body.append(dialog);
  dialog.showModal();
}

export function group(main, { group: name }, life) {
  const offsets = life.keep(new Table({
    label: "Offsets", noun: "partition", columns: OFFSETS, key: (o) => `${o.topic}/${o.partition}`, height: "52vh",
    empty: empty("Nothing committed", "This group has no offset yet."),
  }));
  const members = life.keep(new Table({ label: "Members", noun: "member", columns: MEMBERS, key: (m) => m.member, height: "30vh", empty: empty("No members", "Nobody reads in this group now. Its offsets stay until they expire.") }));
  const numbers = h("div");
  const note = h("p", { class: "soft" });
  const place = h("div");
  let topics = [];
  const resets = state.read_only ? null : button("Reset offsets…", () => resetDialog(name, topics, () => refresh()), { disabled: true });
  put(main, heading(name, h("span", { class: "crumb" }, "in ", h("a", { href: "#/groups" }, "Groups"))), place);
  life.keys({ table: () => offsets });
  const show = (answer) => {
    topics = [...new Set(answer.offsets.map((o) => o.topic))];
    if (resets) {
      resets.disabled = topics.length === 0 || answer.members.length > 0;
      resets.title = answer.members.length > 0 ? "Stop the members first: the group must be empty." : "";
    }
    const lag = answer.offsets.reduce((sum, o) => (o.lag === null ? sum : sum + o.lag), 0);
    const behind = answer.offsets.map((o) => o.lag_seconds).filter((value) => value !== null && value !== undefined);
    const isShare = answer.type === "share";
    offsets.show(isShare ? STARTS : OFFSETS);
    put(numbers, cards([["State", stateTag(answer.state)], ["Kind", answer.type ?? "–"], ["Coordinator", h("span", { class: "address" }, answer.coordinator || "–")],
      ["Assignor", answer.assignor || "–"], ["Members", count(answer.members.length)], ["Lag, records", count(lag), lag > 0 ? "warn" : ""], isShare ? null : ["Lag, the longest", behind.length ? seconds(Math.max(...behind)) : "–"]].filter(Boolean)));
    note.textContent = answer.note ?? (isShare ? "Members of a share group read the same partitions and acknowledge records one by one. What lies before the start of a partition is done with; the lag is what is left after it." : "");
    offsets.set(answer.offsets);
    members.set(answer.members);
    if (!offsets.element.isConnected) put(place, numbers, note, section("Offsets"), resets ? h("div", { class: "tools" }, resets) : null, offsets.element, section("Members"), members.element);
  };
  const refresh = async () => { try { show(await api.group(name, life.signal)); } catch { /* the next turn tells */ } };
  life.load(place, (signal) => api.group(name, signal), show, { every: 3000 });
}
