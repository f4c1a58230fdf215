// Addresses behind #, so that every view has a link and the server needs to know none of them.

const routes = [];

/** route("/topics/:topic", show): show is called with {topic, query}. */
export function route(pattern, show) {
  const names = [];
  const source = pattern.replace(/:(\w+)/g, (_, name) => { names.push(name); return "([^/]+)"; });
  routes.push({ expression: new RegExp(`^${source}$`), names, show });
}

export function link(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") parameters.set(name, value);
  }
  const text = parameters.toString();
  return `#${path.map((part) => `/${encodeURIComponent(part)}`).join("") || "/"}${text ? `?${text}` : ""}`;
}

export function go(path, query) {
  location.hash = link(path, query);
}

/** The address changes, the page stays: what it shows has a permanent link. */
export function note(path, query) {
  history.replaceState(null, "", link(path, query));
}

export function here() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", query: Object.fromEntries(new URLSearchParams(query)) };
}

export function find(path, query = {}) {
  for (const { expression, names, show } of routes) {
    const match = expression.exec(path);
    if (!match) continue;
    const values = {};
    try {
      names.forEach((name, index) => { values[name] = decodeURIComponent(match[index + 1]); });
    } catch { return null; }
    return { show, values: { ...values, query } };
  }
  return null;
}
