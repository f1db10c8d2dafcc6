// @ts-check
// Lossless JSON: integers that JavaScript cannot represent keep their text.

// TypeScript does not know rawJSON yet (proposal "JSON.parse source text access").
const json = /** @type {any} */ (JSON);
const LONG = /\d{16}/;

/** Parses JSON. */
export function parse(text) {
  if (!LONG.test(text) || json.rawJSON === undefined) return JSON.parse(text);
  return json.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source)
      ? json.rawJSON(context.source)
      : value,
  );
}

/** Parses a typed number; null if it is not valid. */
export function number(text) {
  const trimmed = text.trim();
  if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(trimmed)) return null;
  const value = Number(trimmed);
  const exact =
    Number.isSafeInteger(value) || !/^-?\d+$/.test(trimmed) || json.rawJSON === undefined;
  return exact ? value : json.rawJSON(trimmed);
}

export const isRaw = (value) => json.isRawJSON?.(value) === true;
export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !isRaw(value);
export const pretty = (value) => JSON.stringify(value, null, 2);
export const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** A value in one line of at most `most` characters. */
export function short(value, most = 120) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const line = text.slice(0, most * 4).replace(/\s+/g, " ");
  return line.length <= most ? line : `${line.slice(0, most - 1)}…`;
}
