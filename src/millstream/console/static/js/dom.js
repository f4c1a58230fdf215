// Elements from values. Text always goes in as text nodes, never as HTML, so that a topic name or a
// record which looks like markup is shown as it is.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** An HTML element: h("a", {href: "#/", onclick: f}, "text", otherElement). */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Everything inside an element is replaced in one step. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Told to those who listen rather than look. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

export function button(label, onclick, properties = {}) {
  return h("button", { type: "button", class: "button", onclick, ...properties }, label);
}

export function field(label, control, properties = {}) {
  return h("label", { class: "field", ...properties }, h("span", null, label), control);
}

export function select(options, value, onchange, properties = {}) {
  const element = h("select", { onchange: () => onchange?.(element.value), ...properties },
    options.map(([key, text]) => h("option", { value: key }, text)));
  element.value = value;
  return element;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    const area = h("textarea", { class: "unseen", value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    say("Copied");
  }
}
