// The settings of a topic, and where each comes from.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { Table } from "../table.js";

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: "topic", DYNAMIC_BROKER_CONFIG: "broker, set while it runs", DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, set while they run",
  STATIC_BROKER_CONFIG: "broker's file", DEFAULT_CONFIG: "default", DYNAMIC_BROKER_LOGGER_CONFIG: "logger",
};
const plain = (source) => SOURCES[source] ?? String(source ?? "").toLowerCase().replaceAll("_", " ");
const isDefault = (s) => plain(s.source) === "default";

const COLUMNS = [
  { name: "name", label: "Setting", width: "2fr", mono: true, text: (s) => s.name },
  { name: "value", label: "Value", width: "2fr", mono: true, text: (s) => (s.sensitive ? "hidden" : s.value === "" ? "(empty)" : s.value) },
  { name: "source", label: "From", width: "140px", text: (s) => plain(s.source), show: (s) => h("span", { class: `tag ${isDefault(s) ? "" : "warn"}` }, plain(s.source)) },
  { name: "documentation", label: "What it does", width: "3fr", wide: true, text: (s) => s.documentation },
];

export function settingsTab(place, { topic, query }, life) {
  const table = life.keep(new Table({ label: `Settings of ${topic}`, noun: "setting", columns: COLUMNS, key: (s) => s.name, sort: { name: "name", down: false } }));
  const search = h("input", { type: "search", class: "grow", "data-search": true, placeholder: "Search settings  ( / )", "aria-label": "Search settings", oninput: () => table.filter(search.value) });
  const changed = h("input", { type: "checkbox", checked: query.changed === "1", onchange: () => draw() });
  let all = [];
  const draw = () => table.set(all.filter((s) => !changed.checked || !isDefault(s)));
  const rows = h("div");
  put(place, h("div", { class: "tools" }, search, h("label", null, changed, " Changed only")), rows);
  life.keys({ table: () => table });
  life.load(rows, (signal) => api.settings(topic, signal), (answer) => {
    all = answer.settings;
    put(rows, table.element);
    draw();
  });
}
