// @ts-check
// Steps of a trajectory: calls with inputs and results, and the plot of their rewards.

import { button, el, h, parts } from "./dom.js";
import { isObject, pretty } from "../api/json.js";
import { legend, plot } from "./plot.js";
import { blocks, text, tree } from "./show.js";
import { clock, named, plural, reward, seconds } from "./words.js";

const LOOKS = { ok: "ok", refused: "refused", failed: "error", running: "running" };

/** One call as an item of the trajectory; `again` fills the form with it. */
export function stepItem(step, again = null) {
  const wire = step.exchanges?.at(-1);
  const head = el(
    "div.step-head",
    el("span.n", String(step.n)),
    el("code.tool-name", step.tool),
    h("span", { class: `badge ${step.status}` }, LOOKS[step.status]),
    marks(step),
    step.started === undefined ? null : el("span.elapsed.muted", `at ${seconds(step.started)}`),
    el("span.elapsed.muted", step.status === "running" ? "" : seconds(step.seconds)),
    el("span.grow"),
    el(
      "span.acts",
      again
        ? button("Again", again, { class: "small quiet", title: "Fill the form with this input" })
        : null,
      wire ? h("a.small.button.quiet", { href: `#/wire/${wire.id}` }, "Wire") : null,
    ),
  );
  return h(
    "li",
    { class: `step ${step.status}`, "data-step": step.n },
    head,
    given(step),
    result(step),
  );
}

function marks(step) {
  const output = step.output ?? {};
  return [
    typeof output.reward === "number"
      ? h(
          "span",
          {
            class: `badge reward ${output.reward > 0 ? "plus" : output.reward < 0 ? "minus" : ""}`,
          },
          `reward ${reward(output.reward)}`,
        )
      : null,
    parts(output.metadata?.reward_components),
    output.finished ? el("span.badge.finished", "finished") : null,
  ];
}

function given(step) {
  if (step.input === null || step.input === undefined)
    return el("p.muted.input", "The input was not recorded, or is too large to show.");
  const entries = Object.entries(step.input);
  if (entries.length === 0) return null;
  const plain = entries.every(([, value]) => typeof value !== "object" || value === null);
  if (!plain) return el("div.input", text(pretty(step.input)));
  return el(
    "dl.input",
    entries.map(([key, value]) => [
      el("dt", key),
      el(
        "dd",
        typeof value === "string" && (value.length > 100 || value.includes("\n"))
          ? text(value)
          : el("code", typeof value === "string" ? value : JSON.stringify(value)),
      ),
    ]),
  );
}

function result(step) {
  if (step.status === "running")
    return el(
      "p.waiting",
      h("span.spinner", { "aria-hidden": "true" }),
      el("span.since", "Running"),
    );
  if (step.status === "ok") {
    const { blocks: list = [] } = step.output;
    const metadata = withoutParts(step.output.metadata);
    return el(
      "div.result",
      list.length ? blocks(list, step.load) : el("p.muted", "No blocks."),
      metadata
        ? el("div.metadata", el("span.muted", "metadata "), flat(metadata) ?? tree(metadata))
        : null,
    );
  }
  const who = step.status === "refused" ? "The tool refused the call" : "The call failed";
  return el(
    "div.result",
    el("p.verdict", who, step.reason ? el("code", step.reason) : null),
    step.error === null ? null : text(step.error),
  );
}

/** Metadata without the named rewards, which stand beside the reward; null if nothing is left. */
function withoutParts(metadata) {
  if (!isObject(metadata) || !named(metadata.reward_components)) return metadata;
  const { reward_components: _, ...rest } = metadata;
  return Object.keys(rest).length ? rest : null;
}

/** Shows a few simple values in one line; null for anything else. */
function flat(value) {
  const entries = isObject(value) ? Object.entries(value) : [];
  const plain = ([, item]) =>
    typeof item === "number" ||
    typeof item === "boolean" ||
    (typeof item === "string" && item.length < 40);
  if (entries.length === 0 || entries.length > 6 || !entries.every(plain)) return null;
  return entries.map(([key, item]) =>
    el("span.pair", el("span.key", `${key} `), el("code", String(item))),
  );
}

/** Steps as a list of items. */
export class StepList {
  #items = new Map();

  constructor(label) {
    this.element = h("ol.steps", { "aria-label": label });
  }

  /** Adds the item of a step, or draws it again; returns it. */
  put(step, again = null) {
    const item = stepItem(step, again);
    if (this.#items.has(step)) this.#items.get(step).replaceWith(item);
    else this.element.append(item);
    this.#items.set(step, item);
    return item;
  }

  /** Updates the time and the pings of a call, if it runs. */
  tick(step) {
    const since = this.#items.get(step)?.querySelector(".since");
    if (!since) return;
    const elapsed = (performance.now() - step.began) / 1000;
    const pings = step.pings ? `, ${plural(step.pings, "ping")}` : "";
    since.textContent = `Running for ${elapsed.toFixed(1)} s, since ${clock(step.at)}${pings}`;
  }
}

/** Reward per step as bars, their sum as a line; the axis shows the declared range, if there is one. */
export function rewardPlot(steps, range = null) {
  const done = steps.filter((step) => step.status !== "running");
  if (done.length === 0) return el("p.muted", "Rewards are plotted here.");
  let sum = 0;
  const each = done.map((step) => [step.n, step.output?.reward ?? null]);
  const total = done.map((step) => [step.n, Number((sum += step.output?.reward ?? 0).toFixed(9))]);
  const series = [
    { name: "per step", points: each, kind: "bars", tone: "a" },
    { name: "cumulative", points: total, kind: "line", tone: "b" },
  ];
  const drawn = plot({
    label: `Reward per step and in total; total ${reward(sum)} after ${plural(done.length, "step")}`,
    series,
    least: Math.min(0, range?.[0] ?? 0),
    most: range?.[1] ?? 0,
    xs: [0.5, done.at(-1).n + 0.5],
    xFormat: (x) => (x < 1 ? "step 1" : String(Math.floor(x))),
    format: (y) => String(Number(y.toPrecision(3))),
    width: 360,
    height: 130,
  });
  return el("figure.rewards", drawn, el("figcaption", legend(series)));
}
