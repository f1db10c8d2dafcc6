// @ts-check
// Two runs side by side: per task both rewards and their difference; and two episodes of one task.

import { el, fact, facts, fill, h, labelled, loading, parts, select } from "../widgets/dom.js";
import { histogram } from "../widgets/histogram.js";
import { Listing } from "../widgets/listing.js";
import {
  ABSENT,
  address,
  crumbs,
  meter,
  outcomeBadge,
  recorded,
  rounded,
  tile,
  unrewarded,
  withError,
} from "../widgets/recorded.js";
import { EpisodeColumn, factsOf, plots } from "./recorded-episode.js";
import { about } from "../api/server.js";
import { count, joined, plural, reward, seconds } from "../widgets/words.js";

const SHOWN = [["", "all"], "better", "worse", "same", ["alone", "in one run only"]];
const DEFAULTS = { sort: "-difference", task: "", shown: "" };

/** #/compare/A/B?FILTERS&row=N, or #/compare/A/B/EPISODE/EPISODE, where "-" is no episode. */
export async function show(main, [a, b, ...pair], state) {
  if (!about.runs || b === undefined) {
    main.append(
      el("h1", "Compare"),
      el("p.note", about.runs ? "Choose two runs in the list of runs." : ABSENT),
    );
    return null;
  }
  const filters = Object.fromEntries(
    Object.entries(DEFAULTS).map(([name, value]) => [name, state.get(name) ?? value]),
  );
  if (pair.length === 2)
    return showPair(main, [a, b], pair, { ...filters, row: state.get("row") ?? "" });
  main.append(crumbs(["Runs", "#/runs"], ["Compare"]), loading("two runs"));
  const view = new CompareView([a, b], filters, Number(state.get("row") ?? 0));
  return view.listing.show(main, view.element);
}

class CompareView {
  #tiles = el("div.tiles");
  #spread = h("section.card.spread", { "aria-label": "Rewards" });
  #widest = 1;

  constructor([a, b], filters, row) {
    this.listing = new Listing({
      what: "/compare",
      fixed: { a, b },
      parts: ["compare", a, b],
      filters,
      row,
      noun: "task",
      columns: this.#columns(),
      told: (answer) => this.#draw(answer),
    });
    const named = (name, n) => el("li", letter(n), h("a", { href: address(["runs", name]) }, name));
    const swap = el("li", h("a.button.small", { href: address(["compare", b, a]) }, "Swap"));
    this.element = el(
      "div",
      el("ul.pair-names", [a, b].map(named), swap),
      el("div.columns.run", this.#tiles, this.#spread),
      this.listing.card(
        labelled("Search", h("input", { name: "task", type: "search", placeholder: "task" })),
        labelled("B against A", select(SHOWN, "", undefined, { name: "shown" })),
      ),
    );
  }

  #draw(told) {
    const { a, b, better, worse, same, difference, error, p } = told;
    this.#widest = told.widest;
    const sum = (run) =>
      joined(plural(run.episodes, "episode"), unrewarded(run), run.agents.slice(0, 2));
    fill(
      this.#tiles,
      tile("Mean reward of A", withError(a.mean, a.error), sum(a)),
      tile("Mean reward of B", withError(b.mean, b.error), sum(b)),
      tile(
        "Difference, B − A",
        signedError({ difference, error }),
        p === null
          ? "over the tasks of both runs"
          : `p ${p < 0.001 ? "< 0.001" : `= ${Number(p.toPrecision(2))}`}, over the tasks of both runs`,
      ),
      tile("B against A", `${count(better)} better`, `${count(worse)} worse · ${count(same)} same`),
    );
    const parted = told.components.map((one) => fact(one.name, signedError(one)));
    fill(
      this.#spread,
      el("h2", "Rewards"),
      histogram({ ...told.histogram, names: ["A", "B"] }),
      parted.length ? [el("h3", "Named rewards, B − A"), facts(parted)] : null,
    );
    return told.tasks;
  }

  /** @returns {import("../widgets/table.js").Column<import("../api/types.js").TaskPair>[]} */
  #columns() {
    const link = ({ a, b, task }) => this.listing.link([a.id ?? "-", b.id ?? "-"], task);
    const difference = ({ difference: value }) => [
      value === null ? "–" : signed(value),
      meter(value, [-this.#widest, this.#widest]),
    ];
    return [
      { title: "Task", class: "task", order: "task", cell: (pair) => [link(pair), where(pair)] },
      { title: "A", class: "num", order: "a", cell: ({ a }) => side(a) },
      { title: "B", class: "num", order: "b", cell: ({ b }) => side(b) },
      { title: "B − A", class: "num reward", order: "difference", cell: difference },
    ];
  }
}

const signedError = ({ difference, error }) => [
  difference > 0 ? "+" : "",
  withError(difference, error),
];
const where = ({ environment }) => el("span.muted.environment", environment);
const side = ({ mean, count: n }) => [
  rounded(mean),
  n > 1 ? el("span.muted.of", ` of ${count(n)}`) : null,
];
const signed = (value) => `${value > 0 ? "+" : ""}${rounded(value)}`;
const letter = (n) => h("span", { class: `legend ${"ab"[n]}` }, "AB"[n]);

async function showPair(main, runs, pair, state) {
  main.append(loading("two episodes"));
  const told = await Promise.all(
    runs.map((run, n) => (pair[n] === "-" ? null : recorded("/episode", { run, id: pair[n] }))),
  );
  const change = (n, id) =>
    (location.hash = address(["compare", ...runs, ...pair.with(n, id)], state));
  fill(
    main,
    crumbs(
      ["Runs", "#/runs"],
      ["Compare", address(["compare", ...runs], state)],
      [(told[0] ?? told[1])?.task ?? "–"],
    ),
    el(
      "div.columns.both",
      runs.map((run, n) => half(run, n, told[n], (id) => change(n, id))),
    ),
  );
  return null;
}

function half(run, n, told, change) {
  const head = el("h2", letter(n), run);
  const side = (...inside) => h("section", { "aria-label": `Run ${"AB"[n]}` }, inside);
  if (!told)
    return side(el("div.card", head, el("p.muted", "This run has no episode of the task.")));
  const view = new EpisodeColumn(run, told);
  const { samples, episode } = told;
  const choice =
    samples.length > 1
      ? labelled(
          "Episode",
          select(
            samples.map((one) => [
              one.id,
              `#${one.sample}, ${one.outcome}, reward ${reward(one.reward)}`,
            ]),
            episode.id,
            change,
          ),
        )
      : null;
  const alone = h("a.button.small", { href: address(["runs", run, episode.id]) }, "Open alone");
  const brief = el(
    "p.brief-facts",
    el("b.total", reward(episode.reward)),
    parts(episode.components),
    outcomeBadge(episode.outcome.type, told.detail, episode.reward),
    el("span", plural(episode.rewards.length, "call")),
    el("span", seconds(episode.seconds)),
  );
  const more = el(
    "details.more",
    el("summary", "Rewards, times and tokens"),
    factsOf(told),
    plots(told, view),
  );
  return side(el("div.card", head, el("div.bar", choice, alone), brief, more), view.element);
}
