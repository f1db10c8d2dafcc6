// @ts-check
// Numbers, times and schemas as text.

import { constraints } from "../api/schema.js";

const GROUPED = new Intl.NumberFormat("en");

export const count = (value) => GROUPED.format(value);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** The words that there are, in one line. */
export const joined = (...words) => words.flat().filter(Boolean).join(" · ");

/** What a schema says about its values. */
export const meaningOf = (schema) => joined(schema.description, constraints(schema).join(", "));

/** A reward, rounded to hide binary fractions. */
export const reward = (value) =>
  value === null || value === undefined ? "–" : String(Number(value.toFixed(6)));

/** Named rewards in one line, such as "correct 1 · format 0.2"; null if there are none. */
export const named = (components) =>
  Object.entries(components ?? {})
    .filter(([, value]) => typeof value === "number")
    .map(([name, value]) => `${name} ${reward(value)}`)
    .join(" · ") || null;

/** Seconds with a suitable precision. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return age(value);
}

/** A rounded duration. */
export function age(value) {
  const whole = Math.max(0, Math.round(value));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  if (value < 1024 ** 2) return `${(value / 1024).toFixed(1)} kB`;
  return `${(value / 1024 ** 2).toFixed(1)} MB`;
}

export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

const SHORT_DATE = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

/** A day and a time, or a dash if it is not known. */
export const when = (at) => (at > 0 ? SHORT_DATE.format(new Date(at * 1000)) : "–");
