// @ts-check
// Recorded runs: requests, addresses, and how episodes ended.

import { el, h } from "./dom.js";
import { ask, send } from "../api/server.js";
import { count, plural, reward } from "./words.js";

export const ABSENT =
  "This server keeps no records: start it with --record FOLDER, " +
  "or look at a folder with `ors view FOLDER`.";
const LOOKS = {
  scored: "plain",
  unscored: "plain",
  truncated: "refused",
  refused: "refused",
  failed: "failed",
};
const BEAT_MS = 2000;

/** Asks for `what` of the recorded runs. */
export const recorded = (what, asked = {}) =>
  ask("GET", `-/api/runs${what}?${query(asked)}`, { log: false });

/** The content of a blob, as an ArrayBuffer. */
export async function blob(run, name) {
  const { response } = await send("GET", `-/api/runs/blob?${query({ run, blob: name })}`, {
    log: false,
  });
  return response.arrayBuffer();
}

/** The parameters that are set, as the query of an address. */
export const query = (asked) =>
  new URLSearchParams(
    Object.entries(asked).filter(
      ([, value]) => value !== null && value !== undefined && value !== "",
    ),
  ).toString();

/** The address of a view, with its state. */
export function address(parts, state = {}) {
  const asked = query(state);
  return `#/${parts.map(encodeURIComponent).join("/")}${asked ? `?${asked}` : ""}`;
}

/** Calls `look` every two seconds while the page is visible; returns a function that stops this. */
export function watch(look) {
  let timer = null;
  let over = false;
  const again = () => {
    timer = setTimeout(async () => {
      if (!document.hidden) await look().catch(() => {});
      if (!over) again();
    }, BEAT_MS);
  };
  again();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

/** How an episode ended, as a badge; the colour of a scored one says what it earned. */
export const outcomeBadge = (outcome, detail = "", earned = null) =>
  h(
    "span",
    {
      class: `badge ${outcome === "scored" ? tone(earned) : (LOOKS[outcome] ?? "plain")}`,
      title: `${outcome} ${detail}`.trim(),
    },
    outcome,
    detail ? el("span.why", ` ${detail}`) : null,
  );

const tone = (earned) => (earned > 0 ? "plus" : earned < 0 ? "minus" : "plain");

/** What the colours of a strip mean. */
export const stripLegend = () =>
  el(
    "div.legends.strip-legend",
    STRIP.map(([kind, words]) => h("span", { class: `legend ${kind}` }, words)),
  );
const STRIP = [
  ["scored", "scored: the greener, the higher the mean reward"],
  ["plain", "unscored"],
  ["refused", "truncated or refused"],
  ["failed", "failed"],
];

/**
 * How the episodes of a run ended, as a strip.
 * @param {Record<string, number>} outcomes
 * @param {number | null} mean their mean reward
 */
export function outcomeStrip(outcomes, mean) {
  const all = Object.values(outcomes).reduce((sum, n) => sum + n, 0);
  const parts = Object.keys(LOOKS).filter((name) => outcomes[name]);
  const label = parts.map((name) => `${count(outcomes[name])} ${name}`).join(", ") || "no episodes";
  return h(
    "span.strip",
    { role: "img", "aria-label": label, title: label },
    parts.map((name) => {
      const part = h("span", { class: name === "scored" ? "scored" : LOOKS[name] });
      part.style.setProperty(
        "--earned",
        `${Math.round(100 * Math.min(1, Math.max(0, mean ?? 0)))}%`,
      );
      part.style.flexGrow = String(Math.max(outcomes[name] / all, 0.015));
      return part;
    }),
  );
}

/** How many episodes ended without a reward, which the mean counts as 0 or as the run says; or null. */
export const unrewarded = (/** @type {import("../api/types.js").RunSummary} */ run) =>
  run.unrewarded ? `${count(run.unrewarded)} without a reward` : null;

/** A mean with its standard error. */
export const withError = (mean, error) => [
  rounded(mean),
  error ? el("span.error", ` ± ${rounded(error)}`) : null,
];
export const rounded = (value) =>
  value === null || value === undefined ? "–" : reward(Number(value.toFixed(3)));

/**
 * A number on a scale from low to high, as a small bar from zero.
 * @param {number | null} value
 * @param {number[]} scale
 */
export function meter(value, [low, high]) {
  if (value === null) return null;
  const room = h("span.meter", { "aria-hidden": "true" });
  const part = h("span", { class: value < 0 ? "minus" : "plus" });
  const share = (number) => `${(number / (high - low || 1)) * 100}%`;
  part.style.left = share(Math.min(0, value) - low);
  part.style.width = share(Math.abs(value));
  room.append(part);
  return room;
}

/** The title of a view, with links to those above it. */
export const crumbs = (...parts) =>
  el(
    "h1.crumbs",
    parts.map(([label, href], n) => [
      n ? h("span.muted", { "aria-hidden": "true" }, " / ") : null,
      href ? h("a", { href }, label) : label,
    ]),
  );

/** A figure with a title, as a card. */
export const tile = (title, value, ...more) =>
  el("div.tile.card", el("div.title", title), el("b", value), el("div.muted.more", more));

/** A mark at a run that is still being written. */
export const runState = (/** @type {import("../api/types.js").RunSummary} */ run) =>
  run.growing ? el("span.badge.running", "growing") : null;

/** A note on lines that cannot be read. */
export const unreadable = (/** @type {import("../api/types.js").RunSummary} */ run) =>
  run.unreadable
    ? el("p.problem", `${plural(run.unreadable, "line")} of the file cannot be read: left out.`)
    : null;
