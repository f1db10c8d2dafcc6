// @ts-check
// Episodes that have ended, by environment: their rate, mean reward, and the share that was solved.

import { card, el } from "./dom.js";
import { Table } from "./table.js";
import { count, reward } from "./words.js";

const RECENT_SECONDS = 60;
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

/** The sum of two totals, or their difference: with a `sign` of -1. */
const plus = (a, b, sign = 1) => ({
  ended: a.ended + sign * b.ended,
  scored: a.scored + sign * b.scored,
  solved: a.solved + sign * b.solved,
  reward: a.reward + sign * b.reward,
});

/** The mean reward of scored episodes, and the share of them that was solved; null without any. */
export const mean = ({ scored, reward: sum }) => (scored ? sum / scored : null);
export const share = ({ scored, solved }) => (scored ? solved / scored : null);
export const percent = (value) => (value === null ? "–" : `${Math.round(value * 100)}%`);
const rounded = (value) => (value === null ? "–" : reward(Number(value.toPrecision(3))));

/**
 * The episodes of an environment, or of all, in the points of the last minute before `at`.
 * @param {import("../api/types.js").Point[]} points
 * @param {string} environment
 * @param {number} at
 */
export function recentTotals(points, environment, at) {
  let sum = NONE;
  for (let n = points.length - 1; n >= 0 && points[n].at > at - RECENT_SECONDS; n--) {
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
  return points.map(({ at, episodes }) => {
    sum = plus(sum, episodes?.[name] ?? NONE);
    while (points[first].at <= at - SMOOTH)
      sum = plus(sum, points[first++].episodes?.[name] ?? NONE, -1);
    return [at, sum];
  });
}

/** The seconds that recent totals are of: fewer, while there are not yet as many points. */
export const recentSpan = (points) =>
  points.length
    ? Math.min(RECENT_SECONDS, Math.max(1, points.at(-1).at - points[0].at + 1))
    : RECENT_SECONDS;

/** The table of environments. */
export class LearningTable {
  #table = new Table({
    kind: "learning",
    columns: COLUMNS,
    mark: "data-environment",
    key: ({ name }) => name,
    empty: "No episode has ended yet.",
  });
  element = card(
    "Learning",
    "",
    this.#table.element,
    el(
      "p.hint",
      "Rate, mean reward and solved share are those of the last minute. An episode is solved if its " +
        "reward is 1 or more; the share is of episodes with a reward.",
    ),
  );

  /**
   * @param {import("../api/types.js").Point[]} points
   * @param {Record<string, EpisodeTotals>} totals
   */
  draw(points, totals) {
    const now = points.at(-1)?.at ?? 0;
    const names = Object.keys(totals).sort();
    this.#table.draw(
      names.map((name) => {
        const last = recentTotals(points, name, now);
        return { name, rate: last.ended / recentSpan(points), last, all: totals[name] };
      }),
    );
  }
}
