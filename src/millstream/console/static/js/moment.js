/** A moment as people write it, in UTC unless it says otherwise; or milliseconds. NaN if it is none. */
export function moment(text) {
  const words = text.trim();
  if (/^\d+$/.test(words)) return Number(words);
  const iso = words.replace(" ", "T");
  return Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(iso) || !iso.includes("T") ? iso : `${iso}Z`);
}
