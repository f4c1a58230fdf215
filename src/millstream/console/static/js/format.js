// Numbers, sizes and times as text. Nothing here touches the document, so node can check it.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export const NONE = "–";

export function count(value) {
  return value === null || value === undefined ? NONE : Number(value).toLocaleString("en-US");
}

export function bytes(value) {
  if (value === null || value === undefined || value < 0) return NONE;
  let size = Number(value);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return `${value >= 100 ? count(Math.round(value)) : Number(value).toFixed(1)}/s`;
}

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value < 60) return `${value < 10 ? Number(value).toFixed(1) : Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.round((value % 86400) / 3600)} h`;
}

/** ISO 8601 in UTC with milliseconds: sorts as text, and means the same everywhere. */
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return NONE;
  const date = new Date(Number(ms));
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString().replace("T", " ").replace("Z", "");
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
