// Transactions: what is open, since when, and in which partitions.

import * as api from "../api.js";
import { button, h, put } from "../dom.js";
import { count, seconds, time } from "../format.js";
import { empty, heading } from "../page.js";
import { link } from "../router.js";
import { Table } from "../table.js";

const KINDS = { ongoing: "warn", preparecommit: "warn", prepareabort: "warn", completecommit: "good", completeabort: "" };
const tag = (state) => h("span", { class: `tag ${KINDS[String(state).toLowerCase().replaceAll(/[^a-z]/g, "")] ?? ""}` }, state);

const COLUMNS = [
  { name: "id", label: "Transactional id", width: "3fr", text: (t) => t.id },
  { name: "state", label: "State", width: "150px", text: (t) => t.state, show: (t) => tag(t.state) },
  { name: "producer", label: "Producer id", width: "110px", right: true, wide: true, text: (t) => t.producer_id },
];

function details(answer, close) {
  return [h("header", null, h("h2", null, answer.id), button("✕", close, { "aria-label": "Close (Esc)" })),
    h("dl", { class: "facts" }, [["State", tag(answer.state)], ["Producer id", count(answer.producer_id)], ["Epoch", answer.epoch],
      ["Time-out", seconds(answer.timeout_ms === null ? null : answer.timeout_ms / 1000)], ["Started", answer.started === null || answer.started < 0 ? "not open" : `${time(answer.started)} UTC`]]
      .map(([label, value]) => [h("dt", null, label), h("dd", null, value)])),
    h("h3", null, "Partitions"),
    answer.partitions.length === 0 ? h("p", { class: "soft" }, "none")
      : h("ul", { class: "plain" }, answer.partitions.map((p) => h("li", null, h("a", { href: link(["topics", p.topic]) }, `${p.topic}-${p.partition}`))))];
}

export function transactions(main, _values, life) {
  const closer = h("aside", { class: "look", "aria-label": "The chosen transaction", hidden: true });
  const hide = () => { closer.hidden = true; split.classList.remove("open"); };
  const table = life.keep(new Table({
    label: "Transactions", noun: "transaction", columns: COLUMNS, key: (t) => t.id, sort: { name: "id", down: false },
    open: (t) => {
      closer.hidden = false;
      split.classList.add("open");
      const inner = h("div");
      put(closer, inner);
      life.load(inner, (signal) => api.transaction(t.id, signal), (answer) => put(inner, details(answer, hide)));
    },
    empty: empty("No transactions", "A producer with a transactional id shows here after its first transaction begins."),
  }));
  const split = h("div", { class: "split" }, table.element, closer);
  const place = h("div");
  const search = h("input", { type: "search", class: "grow", "data-search": true, placeholder: "Search transactions  ( / )", "aria-label": "Search transactions", oninput: () => table.filter(search.value) });
  put(main, heading("Transactions"), h("div", { class: "tools" }, search), place);
  life.keys({ table: () => table, close: hide });
  life.load(place, api.transactions, (answer) => {
    table.set(answer.transactions);
    if (!split.isConnected) put(place, split);
  }, { every: 5000 });
}
