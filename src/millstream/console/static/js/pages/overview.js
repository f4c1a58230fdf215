// The cluster and its brokers.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count } from "../format.js";
import { cards, empty, heading, section } from "../page.js";
import { link } from "../router.js";
import { Table } from "../table.js";

function disk(broker) {
  const dirs = broker.log_dirs ?? [];
  const failed = dirs.find((dir) => dir.error);
  if (failed) return h("span", { class: "tag bad", title: `${failed.path}: ${failed.error}` }, "log directory failed");
  const total = dirs.reduce((sum, dir) => sum + Math.max(0, dir.total_bytes ?? 0), 0);
  const usable = dirs.reduce((sum, dir) => sum + Math.max(0, dir.usable_bytes ?? 0), 0);
  if (!total) return "–";
  const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("i"));
  meter.firstChild.style.width = `${Math.round(100 * (1 - usable / total))}%`;
  return h("span", null, meter, `${Math.round(100 * (1 - usable / total))} % of ${bytes(total)}`);
}

const COLUMNS = [
  { name: "id", label: "Broker", width: "110px", text: (b) => b.id, show: (b) => h("span", null, b.id, " ", b.controller ? h("span", { class: "tag good" }, "controller") : null) },
  { name: "address", label: "Address", width: "2fr", wide: true, mono: true, text: (b) => `${b.host}:${b.port}` },
  { name: "rack", label: "Rack", width: "100px", wide: true, text: (b) => b.rack },
  { name: "leaders", label: "Leads", width: "90px", right: true, text: (b) => b.leaders, show: (b) => count(b.leaders) },
  { name: "replicas", label: "Replicas", width: "90px", right: true, wide: true, text: (b) => b.replicas, show: (b) => count(b.replicas) },
  { name: "size", label: "Data", width: "100px", right: true, text: (b) => b.size_bytes, show: (b) => bytes(b.size_bytes) },
  { name: "disk", label: "Disk used", width: "1.5fr", wide: true, text: (b) => b.log_dirs?.[0]?.usable_bytes, show: disk },
];

export function overview(main, _values, life) {
  const place = h("div");
  put(main, heading("Overview"), place);
  const table = life.keep(new Table({ label: "Brokers", noun: "broker", columns: COLUMNS, key: (b) => b.id, sort: { name: "id", down: false } }));
  const numbers = h("div");
  const advice = h("div");
  life.keys({ table: () => table });
  life.load(place, api.overview, (answer) => {
    const bad = (value, kind) => (value > 0 ? kind : "");
    put(numbers, cards([
      ["Brokers", count(answer.brokers.length)], ["Controller", answer.controller === null || answer.controller < 0 ? "none" : `broker ${answer.controller}`],
      ["Topics", count(answer.topics)], ["Partitions", count(answer.partitions)],
      ["Under-replicated", count(answer.under_replicated), bad(answer.under_replicated, "warn")],
      ["Without a leader", count(answer.offline), bad(answer.offline, "bad")],
    ]));
    put(advice, answer.topics === 0 ? empty("No topics yet", "Create the first with ", h("code", null, "millstream topic create orders"), ".")
      : answer.under_replicated > 0 ? h("p", { class: "section" }, h("a", { href: link(["topics"], { show: "unhealthy" }) }, "Show the topics with partitions that lack a replica")) : null);
    table.set(answer.brokers);
    if (!table.element.isConnected) put(place, numbers, section("Brokers"), table.element, advice);
  }, { every: 5000 });
}
