// All topics.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count } from "../format.js";
import { empty, heading } from "../page.js";
import { go, link, note } from "../router.js";
import { Table } from "../table.js";

function health(topic) {
  if (topic.offline > 0) return h("span", { class: "tag bad" }, `${count(topic.offline)} without a leader`);
  if (topic.under_replicated > 0) return h("span", { class: "tag warn" }, `${count(topic.under_replicated)} under-replicated`);
  return h("span", { class: "tag good" }, "in sync");
}

const COLUMNS = [
  { name: "name", label: "Topic", width: "3fr", text: (t) => t.name, show: (t) => h("a", { href: link(["topics", t.name]), tabindex: -1 }, t.name) },
  { name: "health", label: "Replicas", width: "150px", text: (t) => (t.offline > 0 ? 2 : t.under_replicated > 0 ? 1 : 0), show: health },
  { name: "partitions", label: "Partitions", width: "96px", right: true, text: (t) => t.partitions, show: (t) => count(t.partitions) },
  { name: "factor", label: "Copies", width: "80px", right: true, wide: true, text: (t) => t.replication_factor },
  { name: "size", label: "Size", width: "100px", right: true, wide: true, text: (t) => t.size_bytes, show: (t) => bytes(t.size_bytes) },
];

export function topics(main, { query }, life) {
  let internal = query.internal === "1";
  let unhealthy = query.show === "unhealthy";
  let all = [];
  const table = life.keep(new Table({
    label: "Topics", noun: "topic", columns: COLUMNS, key: (t) => t.name, sort: { name: "name", down: false },
    open: (t) => go(["topics", t.name]),
    empty: empty("No topics here", "Create one with ", h("code", null, "millstream topic create orders"), ", or show the internal ones."),
  }));
  const draw = () => table.set(all.filter((t) => (internal || !t.internal) && (!unhealthy || t.offline > 0 || t.under_replicated > 0)));
  const search = h("input", { type: "search", class: "grow", "data-search": true, placeholder: "Search topics  ( / )", "aria-label": "Search topics", value: query.q ?? "", oninput: () => { table.filter(search.value); keep(); } });
  const keep = () => note(["topics"], { q: search.value, internal: internal ? 1 : "", show: unhealthy ? "unhealthy" : "" });
  const tick = (text, on, change) => {
    const box = h("input", { type: "checkbox", checked: on, onchange: () => { change(box.checked); keep(); draw(); } });
    return h("label", null, box, " ", text);
  };
  const place = h("div");
  put(main, heading("Topics"), h("div", { class: "tools" }, search,
    tick("Internal", internal, (value) => { internal = value; }), tick("Not in sync only", unhealthy, (value) => { unhealthy = value; })), place);
  life.keys({ table: () => table, close: () => { search.value = ""; table.filter(""); keep(); } });
  life.load(place, api.topics, (answer) => {
    all = answer.topics;
    if (!table.element.isConnected) { put(place, table.element); table.filter(search.value); }
    draw();
  }, { every: 10000 });
}
