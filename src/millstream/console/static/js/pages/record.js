// One record, closely: key, value as a tree, headers; to copy and to link.

import { button, copy, h } from "../dom.js";
import { bytes, count, time } from "../format.js";
import { link } from "../router.js";

const SHOWN = 200;

/** What a key or value is on one line. */
export function preview(content) {
  if (content === null || content === undefined) return null;
  const text = content.json !== undefined ? JSON.stringify(content.json) : content.text ?? "";
  return text.length > 400 ? `${text.slice(0, 400)}…` : text;
}

function whole(content) {
  if (content === null) return "";
  return content.json !== undefined ? JSON.stringify(content.json, null, 2) : content.text ?? "";
}

function tree(value, name, depth = 0) {
  const label = name === undefined ? null : h("span", { class: "name" }, name, ": ");
  if (value === null || typeof value !== "object" || JSON.isRawJSON?.(value)) {
    return h("div", { class: "leaf" }, label, h("span", { class: JSON.isRawJSON?.(value) ? "number" : typeof value }, JSON.stringify(value)));
  }
  const entries = Array.isArray(value) ? value.map((item, at) => [at, item]) : Object.entries(value);
  const brief = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  const details = h("details", { open: depth < 2 }, h("summary", null, label, h("span", { class: "soft" }, brief)));
  // Deep and long ones are drawn when they are opened: a record may have a million of them.
  let from = 0;
  const more = () => {
    for (const [key, item] of entries.slice(from, from + SHOWN)) details.append(tree(item, key, depth + 1));
    from += SHOWN;
    if (from < entries.length) {
      const rest = button(`Show more of ${count(entries.length)}`, () => { rest.remove(); more(); });
      details.append(rest);
    }
  };
  if (details.open) more();
  else details.addEventListener("toggle", () => { if (from === 0) more(); });
  return details;
}

function part(title, content) {
  if (content === null || content === undefined) return [h("h3", null, title), h("p", { class: "soft" }, title === "Value" ? "null: with compaction, this deletes the key (a tombstone)" : "none")];
  const kind = [content.kind, content.schema ? `schema ${content.schema}` : null, bytes(content.size)].filter(Boolean).join(" · ");
  return [h("h3", null, title, " ", h("span", { class: "tag" }, kind)),
    content.error ? h("p", { class: "warn-text" }, content.error) : null,
    content.json !== undefined ? h("div", { class: "tree" }, tree(content.json)) : h("pre", null, content.text ?? "")];
}

export function look(topic, record, close) {
  const place = link(["topics", topic, "records"], { from: "offset", at: record.offset, partition: record.partition, open: 1 });
  const headers = record.headers ?? [];
  return [
    h("header", null, h("h2", null, `Partition ${record.partition}, offset ${count(record.offset)}`),
      button("Copy value", () => copy(whole(record.value)), { disabled: record.value === null }),
      button("Copy link", () => copy(new URL(place, location.href).href)),
      button("✕", close, { "aria-label": "Close the record (Esc)" })),
    h("dl", { class: "facts" }, h("dt", null, "Time"), h("dd", { class: "mono" }, `${time(record.timestamp)} UTC`),
      record.timestamp_type ? [h("dt", null, "Set by"), h("dd", null, String(record.timestamp_type).toLowerCase().includes("append") ? "the broker, on append" : "the producer")] : null),
    part("Key", record.key), part("Value", record.value),
    h("h3", null, `Headers (${headers.length})`),
    headers.length === 0 ? h("p", { class: "soft" }, "none")
      : h("dl", { class: "facts mono" }, headers.map(({ name, value }) => [h("dt", null, name), h("dd", null, value === null ? "null" : typeof value === "object" ? preview(value) : value)])),
  ];
}
