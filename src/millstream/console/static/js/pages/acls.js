// Access rules.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { empty, heading } from "../page.js";
import { Table } from "../table.js";

const COLUMNS = [
  { name: "principal", label: "Who", width: "2fr", text: (a) => a.principal },
  { name: "permission", label: "Rule", width: "80px", text: (a) => a.permission, show: (a) => h("span", { class: `tag ${/deny/i.test(a.permission) ? "bad" : "good"}` }, String(a.permission).toLowerCase()) },
  { name: "operation", label: "May", width: "150px", text: (a) => a.operation },
  { name: "resource", label: "On", width: "2fr", text: (a) => `${a.resource_type} ${a.name}`, show: (a) => h("span", null, h("span", { class: "soft" }, String(a.resource_type).toLowerCase(), " "), a.name, /prefix/i.test(a.pattern) ? "…" : "") },
  { name: "pattern", label: "Names", width: "100px", wide: true, text: (a) => a.pattern },
  { name: "host", label: "From host", width: "1fr", wide: true, mono: true, text: (a) => a.host },
];

export function acls(main, _values, life) {
  const table = life.keep(new Table({ label: "Access rules", noun: "rule", columns: COLUMNS, key: (a) => JSON.stringify(a), sort: { name: "principal", down: false },
    empty: empty("No rules", "Add the first with ", h("code", null, "millstream acl add"), ".") }));
  const search = h("input", { type: "search", class: "grow", "data-search": true, placeholder: "Search rules  ( / )", "aria-label": "Search rules", oninput: () => table.filter(search.value) });
  const place = h("div");
  put(main, heading("Access rules"), h("div", { class: "tools" }, search), place);
  life.keys({ table: () => table });
  life.load(place, api.acls, (answer) => {
    if (answer.enabled === false) {
      put(place, empty("Access rules are off", "The brokers have no authorizer, so every client may do everything. Set ", h("code", null, "authorizer.class.name"), " to switch rules on."));
      return;
    }
    table.set(answer.acls);
    if (!table.element.isConnected) put(place, table.element);
  });
}
