// @ts-check
// Episodes that have ended, by environment: their rate, mean reward, and the share that was solved.

import { fill, h, reachable } from "./dom.js";
import { cellsOf, emptyRow, headRow } from "./table.js";
import { count, reward } from "./words.js";

export const RECENT_SECONDS = 60;
const SMOOTH = 10; // seconds that a point of a curve stands for
const TONES = ["a", "b", "c", "e"];
const NONE = { ended: 0, scored: 0, solved: 0, reward: 0 };

/**
 * @typedef {import("../api/types.js").EpisodeTotals} EpisodeTotals
 * @typedef {{name: string, rate: number, last: EpisodeTotals, all: EpisodeTotals}} LearningRow
 */

/** @type {import("./table.js").Column<LearningRow>[]} */
const COLUMNS = [
  { title: "Environment", cell: ({ name }) => name },
  { title: "Episodes", class: "num wide", cell: ({ all }) => count(all.ended) },
  { title: "Per second", class: "num", cell: ({ rate }) => rate.toFixed(rate < 10 ? 1 : 0) },
  { title: "Mean reward", class: "num", cell: ({ last }) => rounded(mean(last)) },
  { title: "Solved", class: "num", cell: ({ last }) => percent(share(last)) },
  { title: "Reward since start", class: "num wide", cell: ({ all }) => rounded(mean(all)) },
  { title: "Solved since start", class: "num wide", cell: ({ all }) => percent(share(all)) },
];

const plus = (a, b) => ({
  ended: a.ended + b.ended,
  scored: a.scored + b.scored,
  solved: a.solved + b.solved,
  reward: a.reward + b.reward,
});

/** The mean reward of scored episodes, and the share of them that was solved; null without any. */
export const mean = ({ scored, reward: sum }) => (scored ? sum / scored : null);
export const share = ({ scored, solved }) => (scored ? solved / scored : null);
export const percent = (value) => (value === null ? "–" : `${Math.round(value * 100)}%`);
const rounded = (value) => (value === null ? "–" : reward(Number(value.toPrecision(3))));

/**
 * The episodes of an environment, or of all, in the points of the last `span` seconds before `at`.
 * @param {import("../api/types.js").Point[]} points
 * @param {string} environment
 * @param {number} at
 */
export function recentTotals(points, environment, at, span = RECENT_SECONDS) {
  let sum = NONE;
  for (let n = points.length - 1; n >= 0 && points[n].at > at - span; n--) {
    if (points[n].at <= at)
      for (const [name, one] of Object.entries(points[n].episodes ?? {}))
        if (!environment || name === environment) sum = plus(sum, one);
  }
  return sum;
}

/** The environments that get a curve: those with the most episodes. */
export function busiest(points) {
  const totals = new Map();
  for (const { episodes } of points)
    for (const [name, one] of Object.entries(episodes ?? {}))
      totals.set(name, (totals.get(name) ?? 0) + one.ended);
  const names = [...totals.keys()].sort(
    (a, b) => totals.get(b) - totals.get(a) || a.localeCompare(b),
  );
  return {
    shown: names.slice(0, TONES.length).sort(),
    more: Math.max(0, names.length - TONES.length),
  };
}

/** One curve for each environment; `value` makes a number of the episodes around a point. */
export function curves(points, names, value) {
  return names.map((name, n) => ({
    name,
    tone: TONES[n],
    points: smoothed(points, name).map(([at, sum]) => [at, value(sum, SMOOTH)]),
  }));
}

/** For each point the episodes of the seconds before it; in one pass over all points. */
function smoothed(points, name) {
  let sum = NONE;
  let first = 0;
  const minus = (one) => ({
    ended: -one.ended,
    scored: -one.scored,
    solved: -one.solved,
    reward: -one.reward,
  });
  return points.map(({ at, episodes }) => {
    sum = plus(sum, episodes?.[name] ?? NONE);
    while (points[first].at <= at - SMOOTH)
      sum = plus(sum, minus(points[first++].episodes?.[name] ?? NONE));
    return [at, sum];
  });
}

/** The table of environments. */
export class LearningTable {
  #rows = h("tbody");

  constructor() {
    const table = reachable(
      h(
        "div",
        { class: "scroll" },
        h("table", { class: "learning" }, h("thead", null, headRow(COLUMNS)), this.#rows),
      ),
    );
    this.element = h(
      "section",
      { class: "card", "aria-label": "Learning" },
      h("h2", null, "Learning"),
      table,
      h(
        "p",
        { class: "hint" },
        "Rate, mean reward and solved share are those of the last minute. An episode is solved if its " +
          "reward is 1 or more; the share is that of episodes with a reward.",
      ),
    );
    this.draw([], {});
  }

  /**
   * @param {import("../api/types.js").Point[]} points
   * @param {Record<string, EpisodeTotals>} totals
   */
  draw(points, totals) {
    const now = points.at(-1)?.at ?? 0;
    const span = Math.min(RECENT_SECONDS, Math.max(1, now - (points[0]?.at ?? now) + 1));
    const rows = Object.keys(totals)
      .sort()
      .map((name) => {
        const last = recentTotals(points, name, now);
        const row = { name, rate: last.ended / span, last, all: totals[name] };
        return h("tr", { "data-environment": name }, cellsOf(COLUMNS, row));
      });
    fill(this.#rows, rows.length ? rows : emptyRow(COLUMNS, "No episode has ended yet."));
  }
}
