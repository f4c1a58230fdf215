// What every page stands on: its life, loading without flicker, and how a failure looks.

import { button, h, put } from "./dom.js";
import { shortcutsOf } from "./keys.js";

export function failureBox(error, again) {
  return h("div", { class: "failure", role: "alert" },
    h("strong", null, error.what ?? String(error.message ?? error)),
    error.where ? h("p", { class: "soft" }, "Where: ", h("span", { class: "mono" }, error.where)) : null,
    error.next ? h("p", null, "Next: ", error.next) : null,
    again ? button("Try again", again) : null);
}

export function empty(title, ...text) {
  return h("div", { class: "nothing" }, h("strong", null, title), text);
}

export function heading(title, ...rest) {
  document.title = `${typeof title === "string" ? title : title.textContent} · Millstream console`;
  return h("div", { class: "head" }, h("h1", null, title), rest);
}

export function section(title, hint) {
  return h("div", { class: "section" }, h("h2", null, title), hint ? h("span", { class: "hint" }, hint) : null);
}

export function cards(entries) {
  return h("dl", { class: "cards" }, entries.map(([label, value, kind]) => h("div", { class: `card ${kind ?? ""}` }, h("dt", null, label), h("dd", null, value))));
}

/** The time between a page's coming and going: requests end and timers stop with it. */
export class Life {
  #controller = new AbortController();
  #ends = [];

  get signal() { return this.#controller.signal; }
  get over() { return this.signal.aborted; }

  end() {
    this.#controller.abort();
    for (const end of this.#ends) end();
    shortcutsOf(null);
  }

  atEnd(action) { this.#ends.push(action); return action; }

  keys(actions) { shortcutsOf(actions); }

  keep(table) { this.atEnd(() => table.close()); return table; }

  /**
   * ask() → show(answer), and again every so many milliseconds while the page can be seen.
   * Until the first answer the place says so, but only after a moment; a failure later leaves what is shown and says it is old.
   */
  async load(place, ask, show, { every = 0 } = {}) {
    let shown = false;
    let stale = null;
    let told = null;
    const waiting = h("p", { class: "wait" }, "Loading…");
    put(place, waiting);
    const once = async () => {
      try {
        const answer = await ask(this.signal);
        if (this.over) return;
        stale?.remove();
        stale = null;
        if (!shown) put(place);
        shown = true;
        show(answer, place);
      } catch (error) {
        if (this.over || error.name === "AbortError") return;
        if (!(error.what)) console.error(error);
        if (!shown) {
          // The same failure again stays as it is: it would be read out anew each time.
          if (told !== error.message) put(place, failureBox(error, () => { told = null; put(place, waiting); once(); }));
          told = error.message;
        } else if (!stale) {
          stale = failureBox({ ...error, what: `Not up to date: ${error.what ?? error.message}` });
          stale.classList.add("stale");
          document.body.append(stale);
        }
      }
    };
    this.atEnd(() => stale?.remove());
    await once();
    if (!every) return;
    let timer = 0;
    const next = async () => {
      if (!document.hidden) await once();
      if (!this.over) timer = setTimeout(next, every);
    };
    timer = setTimeout(next, every);
    this.atEnd(() => clearTimeout(timer));
  }
}
