// Episodes that have ended, by environment: how many a second, their mean reward, and the share that was solved.

import { fill, h, reachable } from "./dom.js";
import { count, reward } from "./words.js";

export const LATELY = 60; // seconds
const SMOOTH = 10; // seconds that a point of a curve stands for
const TONES = ["a", "b", "c", "e"];
const NONE = { ended: 0, scored: 0, solved: 0, reward: 0 };
const COLUMNS = [["Environment", ""], ["Episodes", "num wide"], ["Per second", "num"], ["Mean reward", "num"], ["Solved", "num"], ["Reward since start", "num wide"], ["Solved since start", "num wide"]];

const plus = (a, b) => ({ ended: a.ended + b.ended, scored: a.scored + b.scored, solved: a.solved + b.solved, reward: a.reward + b.reward });

/** The mean reward of scored episodes, and the share of them that was solved; null without any. */
export const mean = ({ scored, reward: sum }) => (scored ? sum / scored : null);
export const share = ({ scored, solved }) => (scored ? solved / scored : null);
export const percent = (value) => (value === null ? "–" : `${Math.round(value * 100)}%`);
const rounded = (value) => (value === null ? "–" : reward(Number(value.toPrecision(3))));

/** The episodes of an environment, or of all, in the points of the last `span` seconds before `at`. */
export function lately(points, environment, at, span = LATELY) {
  let sum = NONE;
  for (let n = points.length - 1; n >= 0 && points[n].at > at - span; n--) {
    if (points[n].at <= at) for (const [name, one] of Object.entries(points[n].episodes ?? {})) if (!environment || name === environment) sum = plus(sum, one);
  }
  return sum;
}

/** The environments that get a curve: those with the most episodes. */
export function busiest(points) {
  const totals = new Map();
  for (const { episodes } of points) for (const [name, one] of Object.entries(episodes ?? {})) totals.set(name, (totals.get(name) ?? 0) + one.ended);
  const names = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a) || a.localeCompare(b));
  return { shown: names.slice(0, TONES.length).sort(), more: Math.max(0, names.length - TONES.length) };
}

/** One curve for each environment; `value` makes a number of the episodes around a point, of `span` seconds. */
export function curves(points, names, value) {
  return names.map((name, n) => ({ name, tone: TONES[n], points: smoothed(points, name).map(([at, sum]) => [at, value(sum, SMOOTH)]) }));
}

/** For each point the episodes of the seconds before it; in one pass over all points. */
function smoothed(points, name) {
  let sum = NONE;
  let first = 0;
  const minus = (one) => ({ ended: -one.ended, scored: -one.scored, solved: -one.solved, reward: -one.reward });
  return points.map(({ at, episodes }) => {
    sum = plus(sum, episodes?.[name] ?? NONE);
    while (points[first].at <= at - SMOOTH) sum = plus(sum, minus(points[first++].episodes?.[name] ?? NONE));
    return [at, sum];
  });
}

/** The table of environments. */
export class LearningTable {
  #rows = h("tbody");

  constructor() {
    const head = h("tr", null, COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)));
    const table = reachable(h("div", { class: "scroll" }, h("table", { class: "learning" }, h("thead", null, head), this.#rows)));
    this.element = h("section", { class: "card", "aria-label": "Learning" }, h("h2", null, "Learning"), table, h("p", { class: "hint" }, "Rate, mean reward and solved share are those of the last minute. An episode is solved if its reward is 1 or more; the share is that of episodes with a reward."));
    this.draw([], {});
  }

  draw(points, totals) {
    const now = points.at(-1)?.at ?? 0;
    const span = Math.min(LATELY, Math.max(1, now - (points[0]?.at ?? now) + 1));
    const rows = Object.keys(totals).sort().map((name) => {
      const [last, all] = [lately(points, name, now), totals[name]];
      return h("tr", { "data-environment": name }, h("td", null, name), number(count(all.ended), "wide"), number((last.ended / span).toFixed(last.ended / span < 10 ? 1 : 0)), number(rounded(mean(last))), number(percent(share(last))), number(rounded(mean(all)), "wide"), number(percent(share(all)), "wide"));
    });
    fill(this.#rows, rows.length ? rows : h("tr", null, h("td", { colspan: COLUMNS.length, class: "muted empty" }, "No episode has ended yet.")));
  }
}

const number = (text, more = "") => h("td", { class: `num ${more}` }, text);
