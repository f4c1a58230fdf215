// All groups, of every kind.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { count } from "../format.js";
import { empty, heading } from "../page.js";
import { go, link, note } from "../router.js";
import { Table } from "../table.js";

export function stateTag(state) {
  const word = String(state ?? "unknown");
  const kind = /^stable$/i.test(word) ? "good" : /rebalanc|assign|reconcil/i.test(word) ? "warn" : /dead/i.test(word) ? "bad" : "";
  return h("span", { class: `tag ${kind}` }, word);
}

const COLUMNS = [
  { name: "group", label: "Group", width: "3fr", text: (g) => g.group, show: (g) => h("a", { href: link(["groups", g.group]), tabindex: -1 }, g.group) },
  { name: "type", label: "Kind", width: "100px", wide: true, text: (g) => g.type },
  { name: "state", label: "State", width: "150px", text: (g) => g.state, show: (g) => stateTag(g.state) },
  { name: "members", label: "Members", width: "90px", right: true, wide: true, text: (g) => g.members, show: (g) => count(g.members) },
  { name: "lag", label: "Lag (records)", width: "110px", right: true, text: (g) => g.lag, show: (g) => count(g.lag) },
];

export function groups(main, { query }, life) {
  const table = life.keep(new Table({
    label: "Groups", noun: "group", columns: COLUMNS, key: (g) => g.group, sort: { name: "group", down: false }, open: (g) => go(["groups", g.group]),
    empty: empty("No groups yet", "A group is made by its first member: ", h("code", null, "millstream consume -G readers orders"), "."),
  }));
  const keep = () => note(["groups"], { q: search.value });
  const search = h("input", { type: "search", class: "grow", "data-search": true, placeholder: "Search groups  ( / )", "aria-label": "Search groups", value: query.q ?? "", oninput: () => { table.filter(search.value); keep(); } });
  const place = h("div");
  put(main, heading("Groups"), h("div", { class: "tools" }, search), place);
  life.keys({ table: () => table, close: () => { search.value = ""; table.filter(""); keep(); } });
  life.load(place, api.groups, (answer) => {
    table.set(answer.groups);
    if (!table.element.isConnected) { put(place, table.element); table.filter(search.value); }
  }, { every: 5000 });
}
