// A table that keeps only the rows in view in the document: 10,000 rows cost as much as 40.

import { h, put } from "./dom.js";
import { count, plural } from "./format.js";

const ROW = 30;
const SPARE = 8;
const narrow = matchMedia("(max-width: 760px)");
const words = new Intl.Collator("en", { numeric: true });  // localeCompare would make one each time

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return 1;
  if (other === null || other === undefined) return -1;
  return typeof one === "string" ? words.compare(one, other) : one < other ? -1 : 1;
}

/**
 * columns: [{name, label, width, right, wide, text(row), show(row)}]; `wide` ones leave on a phone.
 * open(row): what Enter or a click does. key(row): who a row is, so that the choice outlives a refresh.
 */
export class Table {
  constructor({ label, columns, open, key, noun = "row", empty, sort = null, height = null }) {
    Object.assign(this, { columns, open, key: key ?? ((row) => row), noun, empty });
    this.rows = [];
    this.shown = [];
    this.sort = sort;
    this.chosen = -1;
    this.words = "";
    this.header = h("div", { class: "header", role: "row", "aria-rowindex": 1 });
    this.body = h("div", { class: "body", role: "rowgroup" });
    this.view = h("div", {
      class: "rows", role: "grid", tabindex: 0, "aria-label": label,
      onscroll: () => this.#draw(), onkeydown: (event) => this.#key(event),
    }, this.header, this.body);
    if (height) this.view.style.maxHeight = height;
    this.foot = h("div", { class: "foot" });
    this.element = h("div", { class: "table" }, this.view, this.foot);
    this.size = new ResizeObserver(() => this.#draw());
    this.size.observe(this.view);
    this.turned = () => this.#arrange();
    narrow.addEventListener("change", this.turned);
  }

  close() {
    this.size.disconnect();
    narrow.removeEventListener("change", this.turned);
  }

  /** Other columns, from the next rows on. */
  show(columns) {
    this.columns = columns;
  }

  set(rows) {
    this.rows = rows;
    this.#arrange();
  }

  filter(words) {
    this.words = words.trim().toLowerCase();
    this.view.scrollTop = 0;
    this.#arrange();
  }

  /** Columns that matter less leave, as on a phone, while something stands beside the table. */
  narrowed(compact) {
    if (Boolean(this.compact) === compact) return;
    this.compact = compact;
    this.#arrange();
  }

  #columns() {
    return this.columns.filter((column) => !((narrow.matches || this.compact) && column.wide));
  }

  #arrange() {
    const kept = this.chosen >= 0 && this.shown[this.chosen] !== undefined ? this.key(this.shown[this.chosen]) : null;
    const parts = this.words.split(/\s+/).filter(Boolean);
    this.shown = parts.length === 0 ? [...this.rows] : this.rows.filter((row) => {
      const text = this.columns.map((column) => String(column.text(row) ?? "")).join("\u0001").toLowerCase();
      return parts.every((part) => text.includes(part));
    });
    if (this.sort) {
      const column = this.columns.find(({ name }) => name === this.sort.name);
      const way = this.sort.down ? -1 : 1;
      this.shown.sort((one, other) => way * compare(column.text(one), column.text(other)));
    }
    this.chosen = kept === null ? -1 : this.shown.findIndex((row) => this.key(row) === kept);
    const columns = this.#columns();
    this.grid = columns.map(({ width = "1fr" }) => (width.endsWith("fr") ? `minmax(90px, ${width})` : width)).join(" ");
    this.header.style.gridTemplateColumns = this.grid;
    put(this.header, columns.map((column) => this.#heading(column)));
    this.view.setAttribute("aria-rowcount", this.shown.length + 1);
    this.view.setAttribute("aria-colcount", columns.length);
    this.body.style.height = `${this.shown.length * ROW}px`;
    this.foot.textContent = this.words && this.shown.length !== this.rows.length
      ? `${count(this.shown.length)} of ${plural(this.rows.length, this.noun)}` : plural(this.rows.length, this.noun);
    this.#draw();
  }

  #heading(column) {
    const sorted = this.sort?.name === column.name;
    const way = sorted ? (this.sort.down ? "descending" : "ascending") : "none";
    return h("div", { class: `cell${column.right ? " right" : ""}`, role: "columnheader", "aria-sort": way },
      h("button", {
        type: "button", title: column.title ?? `Sort by ${column.label}`, onclick: () => {
          this.sort = { name: column.name, down: sorted && !this.sort.down };
          this.#arrange();
          this.header.querySelector(`[aria-sort]:not([aria-sort="none"]) button`)?.focus();
        },
      }, column.label, sorted ? (this.sort.down ? " ↓" : " ↑") : ""));
  }

  #draw() {
    if (this.shown.length === 0) {
      this.body.style.height = "auto";
      put(this.body, this.words
        ? h("div", { class: "nothing" }, h("strong", null, "Nothing matches"), `No ${this.noun} contains “${this.words}”.`)
        : this.empty ?? h("div", { class: "nothing" }, `No ${this.noun}s.`));
      return;
    }
    const top = Math.max(0, Math.floor(this.view.scrollTop / ROW) - SPARE);
    const end = Math.min(this.shown.length, top + Math.ceil((this.view.clientHeight || 600) / ROW) + 2 * SPARE);
    const columns = this.#columns();
    put(this.body, this.shown.slice(top, end).map((row, at) => this.#row(row, top + at, columns)));
  }

  #row(row, index, columns) {
    const element = h("div", {
      class: `row${this.open ? " opens" : ""}`, role: "row", "aria-rowindex": index + 2,
      "aria-selected": this.chosen === index ? "true" : "false",
      onclick: (event) => { this.chosen = index; if (!event.target.closest("a, button")) this.open?.(row); this.#draw(); },
    }, columns.map((column) => {
      const content = column.show ? column.show(row) : column.text(row);
      const text = column.text(row);
      return h("div", { class: `cell${column.right ? " right" : ""}${column.mono ? " mono" : ""}`, role: "gridcell", title: typeof text === "string" && text.length > 12 ? text.slice(0, 500) : null },
        content ?? "–");
    }));
    element.style.gridTemplateColumns = this.grid;
    element.style.transform = `translateY(${index * ROW}px)`;
    return element;
  }

  /** The choice moves by so many rows and stays in view. */
  move(step) {
    if (this.shown.length === 0) return;
    this.chosen = Math.max(0, Math.min(this.shown.length - 1, this.chosen + step));
    const top = this.chosen * ROW;
    const room = this.view.clientHeight - ROW;
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    else if (top + ROW > this.view.scrollTop + room) this.view.scrollTop = top + ROW - room;
    this.#draw();
    this.changed?.(this.shown[this.chosen]);
  }

  enter() {
    if (this.shown[this.chosen] !== undefined) this.open?.(this.shown[this.chosen]);
  }

  #key(event) {
    if (event.target !== this.view || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.view.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === "Enter") this.enter();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
