// Shortcuts. They never act while somebody types, and each has a button or link beside it.

import { button, h, say } from "./dom.js";
import { go } from "./router.js";
import { nextTheme } from "./theme.js";

const PLACES = { o: [], t: ["topics"], r: ["groups"], x: ["transactions"], a: ["acls"], l: ["tables"], e: ["explained"] };
export const SHORTCUTS = [
  ["/", "Search this page"], ["j  k  ↓  ↑", "Next and previous row"], ["Enter", "Open the row"],
  ["Esc", "Close, or leave a field"], ["g g", "First row"], ["G", "Last row"], ["g o", "Overview"], ["g t", "Topics"],
  ["g r", "Groups"], ["g x", "Transactions"], ["g a", "Access rules"], ["g l", "Loads and tables"],
  ["g e", "The log explained"], ["n  p", "Next and previous step of a drawing"], ["t", "Light, dark, as the system"], ["?", "This help"],
];

let prefix = 0;
let page = {};

/** What the page that is shown can do: {table, close, step}. */
export function shortcutsOf(actions) {
  page = actions ?? {};
}

export function help() {
  const dialog = h("dialog", { "aria-labelledby": "help-title", onclose: () => dialog.remove() },
    h("h2", { id: "help-title" }, "Keyboard shortcuts"),
    h("dl", { class: "shortcuts" }, SHORTCUTS.map(([keys, does]) => [h("dt", null, keys.split("  ").map((key) => [h("kbd", null, key), " "])), h("dd", null, does)])),
    h("div", { class: "end" }, button("Close", () => dialog.close())));
  document.body.append(dialog);
  dialog.showModal();
}

function act(event) {
  const key = event.key;
  const second = Date.now() - prefix < 1200;
  prefix = 0;
  if (second && key === "g") { page.table?.()?.move(-1e9); return true; }
  if (second && key in PLACES) { go(PLACES[key]); return true; }
  const table = page.table?.();
  switch (key) {
    case "g": prefix = Date.now(); return true;
    case "/": {
      const search = document.querySelector("main [data-search]");
      search?.focus();
      search?.select();
      return Boolean(search);
    }
    case "j": case "ArrowDown": table?.move(1); return Boolean(table);
    case "k": case "ArrowUp": table?.move(-1); return Boolean(table);
    case "G": table?.move(1e9); return Boolean(table);
    case "Enter": table?.enter(); return Boolean(table);
    case "n": case "ArrowRight": page.step?.(1); return Boolean(page.step);
    case "p": case "ArrowLeft": page.step?.(-1); return Boolean(page.step);
    case "Escape": page.close?.(); return Boolean(page.close);
    case "t": say(`Colours: ${nextTheme()}`); return true;
    case "?": help(); return true;
    default: return false;
  }
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
    const target = event.target;
    if (target.closest("input, textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    // Enter and the arrows belong to a link, a button or a summary that has the focus.
    if (target.closest("a, button, summary") && (event.key === "Enter" || event.key === " ")) return;
    if (act(event)) event.preventDefault();
  });
  document.getElementById("help").addEventListener("click", help);
  document.getElementById("theme").addEventListener("click", () => say(`Colours: ${nextTheme()}`));
}

