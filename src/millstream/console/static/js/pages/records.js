// The records browser: from an offset, a time or the newest on, or live; filtered; one looked at closely.

import * as api from "../api.js";
import { button, field, h, put, say, select } from "../dom.js";
import { bytes, count, plural, time } from "../format.js";
import { moment } from "../moment.js";
import { empty, failureBox } from "../page.js";
import { note } from "../router.js";
import { state } from "../state.js";
import { Table } from "../table.js";
import { produceDialog } from "./produce.js";
import { look, preview } from "./record.js";

const KEPT_LIVE = 1000;
const STARTS = [["newest", "Newest"], ["oldest", "Oldest"], ["offset", "Offset"], ["time", "Time (UTC)"]];
const DECODERS = [["auto", "As it looks"], ["schema", "Schema registry"], ["text", "Text"], ["json", "JSON"], ["hex", "Hex"], ["base64", "Base64"]];

const COLUMNS = [
  { name: "partition", label: "Part.", width: "64px", text: (r) => r.partition },
  { name: "offset", label: "Offset", width: "104px", right: true, text: (r) => r.offset, show: (r) => count(r.offset) },
  { name: "timestamp", label: "Time (UTC)", width: "184px", wide: true, mono: true, text: (r) => r.timestamp, show: (r) => time(r.timestamp) },
  { name: "key", label: "Key", width: "1fr", mono: true, text: (r) => preview(r.key) },
  { name: "value", label: "Value", width: "3fr", mono: true, text: (r) => preview(r.value), show: (r) => (r.value === null ? h("span", { class: "tag" }, "null (tombstone)") : preview(r.value)) },
  { name: "size", label: "Size", width: "86px", right: true, wide: true, text: (r) => r.value?.size ?? 0, show: (r) => bytes(r.value?.size ?? 0) },
];

function toolbar(query, run) {
  const from = select(STARTS, query.from ?? "newest", () => { arrange(); from.value === "offset" || from.value === "time" ? at.focus() : run(); });
  const at = h("input", { class: "mono", value: query.at ?? "", size: 20, "aria-label": "Offset or time" });
  const atField = field("From", at);
  const partition = h("input", { class: "mono", size: 5, inputmode: "numeric", placeholder: "all", value: query.partition ?? "" });
  const filter = h("input", { class: "mono", "data-search": true, placeholder: "value.status >= 500  ( / )", value: query.filter ?? "", spellcheck: "false" });
  const decoder = select(DECODERS.filter(([name]) => name !== "schema" || state.schemas), query.decoder ?? "auto", run);
  const limit = select([["50", "50"], ["200", "200"], ["1000", "1,000"]], query.limit ?? "200", run);
  function arrange() {
    atField.hidden = from.value !== "offset" && from.value !== "time";
    at.placeholder = from.value === "time" ? "2026-01-31 12:00" : "0";
  }
  arrange();
  const read = () => ({
    from: from.value, at: atField.hidden ? "" : at.value.trim(), partition: partition.value.trim(), filter: filter.value.trim(),
    decoder: decoder.value === "auto" ? "" : decoder.value, limit: limit.value === "200" ? "" : limit.value,
  });
  const fields = [field("Start", from), atField, field("Partition", partition), field("Only where", filter, { class: "field grow" }), field("Decode as", decoder), field("At most", limit)];
  return { fields, read, begin: from };
}

function asked(query) {
  const result = { partition: query.partition, from: query.from, filter: query.filter, decoder: query.decoder || "auto", limit: query.limit || 200 };
  if (query.partition && !/^\d+$/.test(query.partition)) throw new api.Failure("A partition is a number.", `Partition: ${query.partition}`, "Leave the field empty for all partitions.");
  if (query.from === "offset") {
    if (!/^\d+$/.test(query.at || "0")) throw new api.Failure("An offset is a number.", `From: ${query.at}`, "Enter 0 for the first.");
    result.offset = query.at || "0";
  }
  if (query.from === "time") {
    result.timestamp = moment(query.at);
    if (Number.isNaN(result.timestamp)) throw new api.Failure("This is not a time.", `From: ${query.at || "(empty)"}`, "Write it as 2026-01-31 12:00, in UTC, or as milliseconds since 1970.");
  }
  return result;
}

export function recordsTab(place, { topic, query }, life) {
  let reading = null;
  let stop = null;
  let rows = [];
  let ticking = 0;
  const said = h("span", { class: "soft", role: "status" });
  const closer = h("aside", { class: "look", "aria-label": "The chosen record", hidden: true });
  const table = life.keep(new Table({
    label: `Records of ${topic}`, noun: "record", columns: COLUMNS, key: (r) => `${r.partition}/${r.offset}`, open: (r) => show(r), height: "calc(100vh - 290px)",
    empty: empty("No records here", "Start from the oldest, widen the filter, or send one with ", h("code", null, "millstream produce"), "."),
  }));
  table.changed = (record) => { if (!closer.hidden) show(record); };
  const split = h("div", { class: "split" }, table.element, closer);
  const bar = toolbar(query, () => run());
  const live = button("Live", () => (stop ? end() : follow()), { "aria-pressed": "false", title: "Show records as they come" });
  const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); run(); } }, bar.fields,
    h("button", { class: "button first", type: "submit" }, "Read"), live,
    state.read_only ? null : button("Produce…", () => produceDialog(topic, () => { if (!stop) run(); })));
  const trouble = h("div");
  put(place, form, trouble, split, h("div", { class: "section" }, said));

  function show(record) {
    closer.hidden = false;
    split.classList.add("open");
    table.narrowed(true);
    put(closer, look(topic, record, hide));
  }
  function hide() {
    closer.hidden = true;
    split.classList.remove("open");
    table.narrowed(false);
    table.view.focus({ preventScroll: true });
  }
  function end() {
    stop?.();
    stop = null;
    live.setAttribute("aria-pressed", "false");
    live.textContent = "Live";
  }

  async function run({ open = false } = {}) {
    end();
    reading?.abort();
    const mine = reading = new AbortController();
    const values = bar.read();
    note(["topics", topic, "records"], values);
    const late = setTimeout(() => { said.textContent = "Reading…"; }, 350);
    try {
      const answer = await api.records(topic, asked(values), mine.signal);
      if (life.over) return;
      put(trouble);
      rows = answer.records;
      table.set(rows);
      table.view.scrollTop = 0;
      said.textContent = `${plural(rows.length, "record")} of ${count(answer.scanned)} read${answer.complete === false && rows.length < Number(values.limit || 200) ? "; stopped before the end: start from an offset or a time to go on" : ""}`;
      if (open && rows.length > 0) { table.move(1); show(rows[0]); }
    } catch (error) {
      if (error.name !== "AbortError" && !life.over) { put(trouble, failureBox(error)); said.textContent = ""; }
    } finally { clearTimeout(late); }
  }

  function follow() {
    reading?.abort();
    const values = bar.read();
    put(trouble);
    rows = [];
    let seen = 0;
    table.set(rows);
    live.setAttribute("aria-pressed", "true");
    live.textContent = "Stop";
    said.textContent = "Waiting for records…";
    const draw = () => { ticking = 0; table.set(rows); said.textContent = `${plural(seen, "record")} since the start, the newest first${seen > KEPT_LIVE ? `; the last ${count(KEPT_LIVE)} are kept` : ""}`; };
    stop = api.tail(topic, { partition: values.partition, filter: values.filter, decoder: values.decoder || "auto" }, {
      record: (record) => {
        seen += 1;
        rows.unshift(record);
        if (rows.length > KEPT_LIVE) rows.length = KEPT_LIVE;
        ticking ||= setTimeout(draw, 120);
      },
      failure: (error) => { end(); put(trouble, failureBox(error, follow)); },
    });
    say("Live");
  }

  life.atEnd(() => { end(); reading?.abort(); clearTimeout(ticking); });
  life.keys({ table: () => table, close: hide });
  if (query.live === "1") follow();
  else run({ open: query.open === "1" });
}
