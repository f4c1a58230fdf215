// Starts the console: the frame, the routes, the session.

import * as api from "./api.js";
import { button, h, put } from "./dom.js";
import { startKeys } from "./keys.js";
import { empty, failureBox, heading, Life } from "./page.js";
import { acls } from "./pages/acls.js";
import { explained } from "./pages/explained.js";
import { group } from "./pages/group.js";
import { groups } from "./pages/groups.js";
import { logInPage } from "./pages/log-in.js";
import { overview } from "./pages/overview.js";
import { tables } from "./pages/tables.js";
import { topic } from "./pages/topic.js";
import { topics } from "./pages/topics.js";
import { transactions } from "./pages/transactions.js";
import { find, here, link, route } from "./router.js";
import { state } from "./state.js";
import { startTheme } from "./theme.js";

const PAGES = [
  [[], "Overview", "g o"], [["topics"], "Topics", "g t"], [["groups"], "Groups", "g r"], [["transactions"], "Transactions", "g x"],
  [["acls"], "Access rules", "g a"], [["tables"], "Loads and tables", "g l"], [["explained"], "The log explained", "g e"],
];

route("/", overview);
route("/topics", topics);
route("/topics/:topic", topic);
route("/topics/:topic/:tab", topic);
route("/groups", groups);
route("/groups/:group", group);
route("/transactions", transactions);
route("/acls", acls);
route("/tables", tables);
route("/explained", explained);

let life = new Life();
let shownTo; // whom the page on the screen is for; undefined until there is one

/** Who asks: null for a person who has to log in, "" where nobody has to. */
const asker = () => (state.login ? state.user : "");

function frame(path) {
  const first = path.split("/")[1] ?? "";
  put(document.getElementById("nav"), PAGES.map(([place, label, keys]) => h("a", {
    href: link(place), "aria-current": (place[0] ?? "") === first ? "page" : null,
  }, label, h("kbd", { "aria-hidden": "true" }, keys))));
  // On a phone the pages stand in a row that is wider than the screen.
  const nav = document.getElementById("nav");
  const current = nav.querySelector("[aria-current]");
  if (current) nav.scrollLeft = current.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
}

function show() {
  const { path, query } = here();
  const main = document.getElementById("main");
  shownTo = asker();
  life.end();
  life = new Life();
  frame(path);
  window.scrollTo(0, 0);
  if (asker() === null) {
    logInPage(main, session);
    return;
  }
  const found = find(path, query);
  if (!found) {
    put(main, heading("No such page"), empty("There is no page at this address", h("a", { href: "#/" }, "Go to the overview")));
    return;
  }
  try {
    found.show(main, found.values, life);
  } catch (error) {
    console.error(error);
    put(main, failureBox({ what: `This page failed: ${error.message}`, where: path, next: "Reload the page. If it fails again, report it with the text above." }, show));
  }
  main.focus({ preventScroll: true });
}

const user = () => document.getElementById("user");

/** What is known of a session that has ended. */
function forget() {
  Object.assign(state, { user: null, read_only: true, guard: "1", cluster_id: null });
  put(user());
  for (const id of ["cluster", "mode"]) put(document.getElementById(id));
  document.getElementById("mode").className = "mode";
}

async function leave() {
  try { await api.logOut(); } catch { /* the session may have ended by itself */ }
  forget();
  show();
}

async function session() {
  const mode = document.getElementById("mode");
  try {
    Object.assign(state, await api.session());
    const cluster = document.getElementById("cluster");
    cluster.textContent = state.cluster_id ?? state.bootstrap;
    cluster.title = `Connected through ${state.bootstrap}`;
    // This answer may have come after the page that did not wait for it.
    if (shownTo !== undefined && shownTo !== asker()) show();
    if (asker() === null) { forget(); return; }
    put(user(), state.user === null ? [] : [h("span", null, state.user), button("Log out", leave)]);
    mode.textContent = state.read_only ? "Read only" : "Can write";
    mode.className = `mode${state.read_only ? "" : " writes"}`;
    mode.title = state.read_only ? "Nothing can be changed here. Start the console with --allow-writes to produce records and reset groups." : "Records can be produced and groups reset here.";
  } catch {
    setTimeout(session, 3000);
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
api.whenLoggedOut(() => {
  if (!asker()) return;
  forget();
  show();
});
startTheme();
startKeys();
window.addEventListener("hashchange", show);
await Promise.race([session(), new Promise((resolve) => { setTimeout(resolve, 400); })]);
show();
