// @ts-check
// Small plots in SVG.

import { el, h, s } from "./dom.js";

const LEFT = 44;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 10;

/** Round numbers that span from `low` to `high`. */
function ticks(low, high) {
  const step0 = (high - low || 1) / 3;
  const power = 10 ** Math.floor(Math.log10(step0));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= step0 * 0.999);
  const found = [];
  for (let n = Math.floor(low / step + 1e-9); n <= Math.ceil(high / step - 1e-9); n++)
    found.push(Number((n * step).toPrecision(12)));
  return found;
}

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {(number | null)[][]} points Pairs of x and y.
 * @property {string} tone
 * @property {string} [kind] "line" or "bars"
 */

/**
 * A plot of `series`: `[{name, points: [[x, y], …], kind: "line" | "bars", tone}]`.
 * A null `y` interrupts a line; `gap` is the largest distance between two points of one line.
 * @param {object} given
 * @param {Series[]} given.series
 * @param {string} given.label
 * @param {number} given.width
 * @param {number} given.height
 * @param {number[]} given.xs
 * @param {(y: number) => string} given.format
 * @param {(x: number) => string} given.xFormat
 * @param {number} [given.gap]
 * @param {number} [given.least]
 * @param {number} [given.most]
 */
export function plot({
  series,
  label,
  width,
  height,
  xs: [from, to],
  format,
  xFormat,
  gap = Infinity,
  least = 0,
  most = 0,
}) {
  const all = series
    .flatMap((one) => one.points.map(([, y]) => y))
    .filter((y) => y !== null && y !== undefined);
  const [lowest, highest] = [Math.min(least, ...all), Math.max(least, most, ...all)];
  const marks = ticks(lowest, highest > lowest ? highest : lowest + 1);
  const [low, high] = [marks[0], marks.at(-1)];
  const x = (value) => LEFT + ((value - from) / (to - from || 1)) * (width - LEFT - RIGHT);
  const y = (value) =>
    height - BOTTOM - ((value - low) / (high - low || 1)) * (height - BOTTOM - TOP);
  return s(
    "svg",
    { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    marks.map((mark) => [
      s("line", {
        class: mark === 0 ? "axis" : "grid",
        x1: LEFT,
        x2: width - RIGHT,
        y1: y(mark),
        y2: y(mark),
      }),
      s("text", { x: LEFT - 6, y: y(mark) + 3.5, "text-anchor": "end" }, format(mark)),
    ]),
    s("text", { x: x(from), y: height - 5, "text-anchor": "start" }, xFormat(from)),
    s("text", { x: x(to), y: height - 5, "text-anchor": "end" }, xFormat(to)),
    series.map((one) =>
      one.kind === "bars"
        ? bars(one, x, y, (width - LEFT - RIGHT) / Math.max(8, one.points.length + 1))
        : lines(one, x, y, gap),
    ),
  );
}

/** The names of series, with their colours. */
export const legend = (series) =>
  el(
    "div.legends",
    series.map(({ name, tone }) => h("span", { class: `legend ${tone}` }, name)),
  );

function bars({ points, tone }, x, y, room) {
  const wide = Math.max(1, Math.min(18, room * 0.6));
  const bar = ([at, value]) => {
    const height = Math.max(1.5, Math.abs(y(value) - y(0)));
    const [left, top] = [x(at) - wide / 2, Math.min(y(value), y(0))];
    const [a, b, c, d, e] = [left, top, wide, height, -wide].map((each) => each.toFixed(1));
    return `M${a} ${b}h${c}v${d}h${e}z`;
  };
  // One path for all bars: hundreds of elements would be recreated at every step.
  const given = points.filter(([, value]) => value !== null);
  return s("path", { class: `bar ${tone}`, d: given.map(bar).join(""), "data-bars": given.length });
}

function lines({ points, tone }, x, y, gap) {
  const runs = [[]];
  let last = null;
  for (const [at, value] of points) {
    if (value === null || value === undefined || (last !== null && at - last > gap)) runs.push([]);
    if (value !== null && value !== undefined) runs.at(-1).push([x(at), y(value)]);
    last = at;
  }
  return runs
    .filter((run) => run.length)
    .map((run) =>
      run.length === 1
        ? s("circle", { class: `dot ${tone}`, cx: run[0][0], cy: run[0][1], r: 2.5 })
        : s("polyline", {
            class: `line ${tone}`,
            points: run.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" "),
          }),
    );
}
