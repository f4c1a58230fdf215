// One topic: its partitions, records, settings, replicas and log, each behind a tab with a link.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { cards, heading } from "../page.js";
import { go, link } from "../router.js";
import { Table } from "../table.js";
import { logTab } from "./log.js";
import { recordsTab } from "./records.js";
import { replicasTab } from "./replicas.js";
import { settingsTab } from "./settings.js";

const TABS = { partitions: ["Partitions", partitionsTab], records: ["Records", recordsTab], settings: ["Settings", settingsTab], replicas: ["Replicas, live", replicasTab], log: ["The log", logTab] };

function replicas(partition) {
  return h("span", null, partition.replicas.map((id, at) => [at ? " " : "", h("span", {
    class: `tag ${id === partition.leader ? "good" : partition.isr.includes(id) ? "" : "warn"}`,
    title: id === partition.leader ? "leads" : partition.isr.includes(id) ? "in sync" : "not in sync",
  }, id, id === partition.leader ? " ★" : partition.isr.includes(id) ? "" : " behind")]));
}

const COLUMNS = [
  { name: "partition", label: "Partition", width: "104px", text: (p) => p.partition },
  { name: "leader", label: "Leader", width: "80px", wide: true, text: (p) => p.leader, show: (p) => (p.leader === null || p.leader < 0 ? h("span", { class: "tag bad" }, "none") : p.leader) },
  { name: "epoch", label: "Epoch", width: "80px", right: true, wide: true, text: (p) => p.leader_epoch },
  { name: "replicas", label: "Replicas (★ leads)", width: "2fr", text: (p) => p.replicas.length - p.isr.length, show: replicas },
  { name: "start", label: "Start offset", width: "120px", right: true, wide: true, text: (p) => p.start_offset, show: (p) => count(p.start_offset) },
  { name: "end", label: "End offset", width: "110px", right: true, text: (p) => p.end_offset, show: (p) => count(p.end_offset) },
  { name: "rate", label: "In", width: "90px", right: true, wide: true, text: (p) => p.rate, show: (p) => rate(p.rate) },
  { name: "size", label: "Size", width: "100px", right: true, wide: true, text: (p) => p.size_bytes, show: (p) => bytes(p.size_bytes) },
];

function sum(partitions, name) {
  const values = partitions.map((p) => p[name]).filter((value) => value !== null && value !== undefined);
  return values.length ? values.reduce((one, other) => one + other, 0) : null;
}

function partitionsTab(place, { topic: name }, life) {
  const table = life.keep(new Table({ label: `Partitions of ${name}`, noun: "partition", columns: COLUMNS, key: (p) => p.partition, sort: { name: "partition", down: false }, open: (p) => go(["topics", name, "records"], { partition: p.partition }) }));
  const numbers = h("div");
  life.keys({ table: () => table });
  let last = null;
  life.load(place, (signal) => api.topic(name, signal), (answer) => {
    // The rate is what came between two answers, where the server does not know one.
    const now = performance.now();
    const ends = new Map(answer.partitions.map((p) => [p.partition, p.end_offset]));
    if (last) {
      for (const p of answer.partitions) {
        const before = last.ends.get(p.partition);
        if ((p.rate ?? null) === null && Number.isFinite(before) && Number.isFinite(p.end_offset)) p.rate = Math.max(0, (p.end_offset - before) / ((now - last.now) / 1000));
      }
    }
    last = { now, ends };
    const behind = answer.partitions.filter((p) => p.isr.length < p.replicas.length).length;
    const start = sum(answer.partitions, "start_offset");
    const end = sum(answer.partitions, "end_offset");
    put(numbers, cards([["Partitions", count(answer.partitions.length)], ["Records", start === null || end === null ? "–" : count(end - start)], ["Coming in", rate(sum(answer.partitions, "rate"))],
      ["Size, of the leaders", bytes(sum(answer.partitions, "size_bytes"))], ["Under-replicated", count(behind), behind ? "warn" : ""]]));
    table.set(answer.partitions);
    if (!table.element.isConnected) put(place, numbers, table.element);
  }, { every: 3000 });
}

export function topic(main, values, life) {
  const tab = values.tab in TABS ? values.tab : "partitions";
  const place = h("div");
  put(main, heading(values.topic, h("span", { class: "crumb" }, "in ", h("a", { href: "#/topics" }, "Topics"))),
    h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, Object.entries(TABS).map(([name, [label]]) => h("a", {
      href: link(name === "partitions" ? ["topics", values.topic] : ["topics", values.topic, name]), "aria-current": name === tab ? "page" : null,
    }, label))), place);
  TABS[tab][1](place, values, life);
}
