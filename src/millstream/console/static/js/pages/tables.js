// Loads into tables: how far they are, and how large the tables are.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count } from "../format.js";
import { empty, heading } from "../page.js";
import { link } from "../router.js";
import { Table } from "../table.js";

const COLUMNS = [
  { name: "table", label: "Table", width: "3fr", mono: true, text: (t) => t.table },
  { name: "topic", label: "Topic", width: "2fr", wide: true, text: (t) => t.topic, show: (t) => (t.topic ? h("a", { href: link(["topics", t.topic]) }, t.topic) : "–") },
  { name: "lag", label: "Lag (records)", width: "110px", right: true, text: (t) => t.lag, show: (t) => h("span", { class: t.lag > 0 ? "warn-text" : "" }, count(t.lag)) },
  { name: "files", label: "Files", width: "90px", right: true, wide: true, text: (t) => t.files, show: (t) => count(t.files) },
  { name: "error", label: "State", width: "2fr", text: (t) => t.error ?? "", show: (t) => (t.error ? h("span", { class: "bad-text" }, t.error) : h("span", { class: "tag good" }, "readable")) },
  { name: "bytes", label: "Size", width: "100px", right: true, text: (t) => t.bytes, show: (t) => bytes(t.bytes) },
];

export function tables(main, _values, life) {
  const table = life.keep(new Table({ label: "Tables", noun: "table", columns: COLUMNS, key: (t) => t.table,
    empty: empty("No tables", "Start the console with ", h("code", null, "--table TOPIC=KIND:PLACE"), " for each table that it shows, and load one with ", h("code", null, "millstream load TOPIC"), ".") }));
  const place = h("div");
  put(main, heading("Loads and tables"), place);
  life.keys({ table: () => table });
  life.load(place, api.tables, (answer) => {
    table.set(answer.tables);
    if (!table.element.isConnected) put(place, table.element);
  }, { every: 10000 });
}
