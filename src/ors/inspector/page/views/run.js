// @ts-check
// One run: figures, a histogram of its rewards, and its episodes to sort and filter.

import { el, fact, fill, h, labelled, loading, select } from "../widgets/dom.js";
import { histogram } from "../widgets/histogram.js";
import { Listing } from "../widgets/listing.js";
import {
  crumbs,
  meter,
  outcomeBadge,
  outcomeStrip,
  rounded,
  runState,
  tile,
  unreadable,
  unrewarded,
  withError,
} from "../widgets/recorded.js";
import { count, joined, named, plural, reward, seconds, when } from "../widgets/words.js";

const OUTCOMES = [
  ["", "any"],
  "scored",
  "unscored",
  "truncated",
  "truncated turns",
  "truncated tokens",
  "truncated cost",
  "truncated seconds",
  "refused",
  "failed",
  "failed agent",
  "failed model",
  "failed environment",
  "failed infrastructure",
];
const FILTERS = ["sort", "outcome", "task", "reward_from", "reward_to", "calls_from", "calls_to"];

/** The order and the filters in the query of an address. */
export const filtersOf = (state) =>
  Object.fromEntries(
    FILTERS.map((name) => [name, state.get(name) ?? (name === "sort" ? "started" : "")]),
  );

/** #/runs/RUN?FILTERS&row=N */
export async function show(main, [name], state) {
  main.append(crumbs(["Runs", "#/runs"], [name]), loading("the run"));
  const view = new RunView(name, filtersOf(state), Number(state.get("row") ?? 0));
  return view.listing.show(main, view.element);
}

class RunView {
  #tiles = el("div.tiles");
  #spread = h("section.card.spread", { "aria-label": "Rewards" });
  #findings = el("ul");
  #findingsTitle = el("summary");
  #findingsCard = h("details.findings", { hidden: true }, this.#findingsTitle, this.#findings);
  #scale = [0, 1];

  constructor(name, filters, row) {
    this.listing = new Listing({
      what: "/episodes",
      fixed: { run: name },
      parts: ["runs", name],
      filters,
      row,
      noun: "episode",
      columns: this.#columns(),
      told: (answer) => this.#draw(answer),
    });
    this.element = el(
      "div",
      el("div.columns.run", this.#tiles, this.#spread),
      this.#findingsCard,
      this.listing.card(
        labelled(
          "Search",
          h("input", { name: "task", type: "search", placeholder: "task, agent or id" }),
        ),
        labelled("Outcome", select(OUTCOMES, "", undefined, { name: "outcome" })),
        range("reward", "Reward"),
        range("calls", "Calls"),
      ),
    );
  }

  #draw({ run, findings, histogram: spread }) {
    this.#findingsCard.hidden = !findings.length;
    this.#findingsTitle.textContent = plural(findings.length, "finding");
    fill(
      this.#findings,
      findings.map((each) => this.#finding(each)),
    );
    const ended = ["scored", "unscored", "truncated", "refused", "failed"]
      .filter((what) => run.outcomes[what])
      .map((what) => `${count(run.outcomes[what])} ${what}`);
    const passes = run.passes.map(({ k, any }) => `pass@${k} ${rounded(any)}`);
    if (!passes.length && run.error !== null) passes.push("± standard error, clustered by task");
    const cost = run.cost === null ? null : `cost ${run.cost.toFixed(2)}`;
    fill(
      this.#tiles,
      tile(
        "Episodes",
        [count(run.episodes), " ", runState(run)],
        joined(plural(run.tasks, "task"), run.agents.slice(0, 2)),
      ),
      tile("Mean reward", withError(run.mean, run.error), joined(unrewarded(run), passes)),
      tile("Outcomes", outcomeStrip(run.outcomes, run.mean), ended.join(" · ")),
      tile(
        "Tokens",
        count(run.tokens),
        joined(
          run.unknown ? `unknown for ${plural(run.unknown, "request")}` : cost,
          run.episodes ? `${seconds(run.seconds / run.episodes)} per episode` : null,
        ),
      ),
    );
    const bars = () => [...this.#spread.querySelectorAll("button")];
    const focused = bars().indexOf(document.activeElement);
    const means = run.components.map(({ name, mean, error }) => fact(name, withError(mean, error)));
    fill(
      this.#spread,
      el("h2", "Rewards"),
      this.#histogram(spread),
      means.length ? h("dl.facts", { "aria-label": "Named rewards" }, means) : null,
      unreadable(run),
    );
    bars()[focused]?.focus({ preventScroll: true });
    const values = [...spread.bars.flatMap((bar) => [bar.from, bar.to]), ...(run.range ?? [])];
    this.#scale = [Math.min(0, ...values), Math.max(0, ...values)];
    return run.episodes;
  }

  /** What was found, what to do, and links to the episodes behind it. */
  #finding({ text, advice, episodes, count: all }) {
    const links = episodes.flatMap((id) => [" ", this.listing.link([id], id.slice(0, 8))]);
    const more = all > episodes.length ? ` and ${count(all - episodes.length)} more` : null;
    return el(
      "li",
      el("b", text),
      el("div", `${advice}.`),
      el("div.muted", "Episodes:", links, more),
    );
  }

  #histogram(spread) {
    const { reward_from: from, reward_to: to } = this.listing.filters;
    const none = from === "" && to === "";
    const within = (bar) =>
      bar.most !== null &&
      bar.most >= (from === "" ? -Infinity : Number(from)) &&
      bar.least <= (to === "" ? Infinity : Number(to));
    const choose = (bar) => {
      const same = from === String(bar.least) && to === String(bar.most);
      return this.listing.filter({
        reward_from: same ? "" : String(bar.least),
        reward_to: same ? "" : String(bar.most),
      });
    };
    return histogram({ ...spread, chosen: (bar) => (none ? null : within(bar)), choose });
  }

  /** @returns {import("../widgets/table.js").Column<import("../api/types.js").EpisodeRow>[]} */
  #columns() {
    const link = (one) => this.listing.link([one.id], one.task);
    const earned = (one) => [
      h("span", { title: named(one.components) }, reward(one.reward)),
      meter(one.reward, this.#scale),
    ];
    return [
      { title: "Task", class: "task", order: "task", cell: (one) => [link(one), where(one)] },
      { title: "Outcome", class: "outcome", order: "outcome", cell: ending },
      { title: "Reward", class: "num reward", order: "reward", cell: earned },
      { title: "Calls", class: "num wide", order: "calls", cell: (one) => count(one.calls) },
      { title: "Tokens", class: "num wide", order: "tokens", cell: (one) => count(one.tokens) },
      { title: "Time", class: "num wide", order: "seconds", cell: (one) => seconds(one.seconds) },
      { title: "Began", class: "num wide began", order: "started", cell: began },
    ];
  }
}

function range(name, label) {
  const bound = (end, placeholder) =>
    h("input", {
      name: `${name}_${end}`,
      type: "number",
      step: "any",
      "aria-label": `${label} ${end}`,
      placeholder,
    });
  return el(
    "div.labelled",
    h("span", { "aria-hidden": "true" }, label),
    el(
      "div.range",
      bound("from", "least"),
      h("span.muted", { "aria-hidden": "true" }, "–"),
      bound("to", "most"),
    ),
  );
}

const where = ({ sample, environment }) => [
  sample ? el("span.muted", ` #${sample}`) : null,
  el("span.muted.environment", environment),
];
const ending = ({ outcome, detail, reward: earned }) => outcomeBadge(outcome, detail, earned);
const began = ({ started }) => el("span.muted", when(started));
