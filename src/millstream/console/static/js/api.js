// Every request that the console makes, in one place. docs/console.md has the shapes.

import { state } from "./state.js";

/** What a page tells when something does not work: what, where, and what to do next. */
export class Failure extends Error {
  constructor(what, where, next, status = 0) {
    super(what);
    Object.assign(this, { what, where, next, status });
  }
}

async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { ...options, headers: { Accept: "application/json", ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The console does not answer.", location.host, "Is `millstream console` still running? The page goes on by itself when it is.");
  }
  let body = null;
  try { body = parse(await answer.text()); } catch (error) { if (error.name === "AbortError") throw error; }
  if (answer.status === 401 && !options.isLogIn) loggedOut();
  if (!answer.ok || body === null) {
    const { what, where, next } = body?.error ?? {};
    throw new Failure(what ?? `The console answered ${answer.status}.`, where ?? address, next ?? "The log of `millstream console` may say more.", answer.status);
  }
  return body;
}

// Numbers that a double cannot have stay as they are written, where the browser has a way to keep them.
const exact = typeof JSON.rawJSON === "function"
  ? (_, value, context) => (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? JSON.rawJSON(context.source) : value)
  : undefined;

export function parse(text) {
  return JSON.parse(text, exact);
}

let loggedOut = () => {};
/** Called when an answer says that there is no session. */
export function whenLoggedOut(action) { loggedOut = action; }

const part = encodeURIComponent;

function parameters(values) {
  const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
  return text ? `?${text}` : "";
}

function send(address, body) {
  return ask(address, {
    method: "POST", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-Millstream-Console": state.guard },
  });
}

export const session = (signal) => ask("/api/session", { signal });
export const logIn = (user, password) => ask("/api/session", {
  method: "POST", body: JSON.stringify({ user, password }), isLogIn: true,
  headers: { "Content-Type": "application/json", "X-Millstream-Console": "1" },
});
export const logOut = () => ask("/api/session", { method: "DELETE", headers: { "X-Millstream-Console": state.guard } });
export const overview = (signal) => ask("/api/overview", { signal });
export const topics = (signal) => ask("/api/topics", { signal });
export const topic = (name, signal) => ask(`/api/topics/${part(name)}`, { signal });
export const settings = (name, signal) => ask(`/api/topics/${part(name)}/settings`, { signal });
export const records = (name, query, signal) => ask(`/api/topics/${part(name)}/records${parameters(query)}`, { signal });
export const produce = (name, record) => send(`/api/topics/${part(name)}/records`, record);
export const groups = (signal) => ask("/api/groups", { signal });
export const group = (name, signal) => ask(`/api/groups/${part(name)}`, { signal });
export const reset = (name, plan) => send(`/api/groups/${part(name)}/reset`, plan);
export const transactions = (signal) => ask("/api/transactions", { signal });
export const transaction = (id, signal) => ask(`/api/transactions/${part(id)}`, { signal });
export const acls = (signal) => ask("/api/acls", { signal });
export const tables = (signal) => ask("/api/tables", { signal });
export const log = (name, partition, query, signal) => ask(`/api/log/${part(name)}/${part(partition)}${parameters(query)}`, { signal });
export const replicas = (name, partition, signal) => ask(`/api/replicas/${part(name)}/${part(partition)}`, { signal });

/** Records as they come. Answers a function that ends it. */
export function tail(name, query, { record, failure, open }) {
  const source = new EventSource(`/api/topics/${part(name)}/tail${parameters(query)}`);
  source.addEventListener("open", () => open?.());
  source.addEventListener("record", (event) => record(parse(event.data)));
  source.addEventListener("failure", (event) => {
    const { what, where, next } = JSON.parse(event.data);
    failure(new Failure(what, where, next));
    source.close();
  });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) failure(new Failure("The live view ended.", location.host, "Start it again; the log of `millstream console` may say why."));
  };
  return () => source.close();
}
