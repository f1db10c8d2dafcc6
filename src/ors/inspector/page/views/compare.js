// @ts-check
// Two runs side by side: per task both rewards and their difference; and two episodes of one task.

import { button, fact, fill, h, labelled, loading, parts, select } from "../widgets/dom.js";
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
import { EpisodeColumn, facts, plots } from "./recorded-episode.js";
import { about } from "../api/server.js";
import { count, plural, reward, seconds } from "../widgets/words.js";

const SHOWN = [["", "all"], "better", "worse", "same", ["alone", "in one run only"]];
const DEFAULTS = { sort: "-difference", task: "", shown: "" };

/** #/compare/A/B?FILTERS&row=N, or #/compare/A/B/EPISODE/EPISODE, where "-" is no episode. */
export async function show(main, [a, b, ...pair], state) {
  if (!about.runs || b === undefined) {
    main.append(
      h("h1", null, "Compare"),
      h("p", { class: "note" }, about.runs ? "Choose two runs in the list of runs." : ABSENT),
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
  const stop = await view.listing.begin();
  main.lastChild.remove();
  main.append(view.element);
  view.listing.restore();
  return stop;
}

class CompareView {
  #tiles = h("div", { class: "tiles" });
  #spread = h("section", { class: "card spread", "aria-label": "Rewards" });
  #found = h("span", { class: "where", "aria-live": "polite" });
  #widest = 1;

  constructor([a, b], filters, row) {
    this.listing = new Listing({
      what: "/compare",
      fixed: { a, b },
      parts: ["compare", a, b],
      filters,
      row,
      label: "Tasks",
      columns: this.#columns(),
      told: (answer) => this.#draw(answer),
      empty: "No task matches.",
    });
    const named = (name, n) =>
      h("li", null, letter(n), h("a", { href: address(["runs", name]) }, name));
    const swap = h(
      "li",
      null,
      h("a", { class: "button small", href: address(["compare", b, a]) }, "Swap"),
    );
    const controls = h(
      "div",
      { class: "bar filters", role: "search", "aria-label": "Tasks" },
      this.listing.control("task", "Search", h("input", { type: "search", placeholder: "task" })),
      this.listing.control(
        "shown",
        "B against A",
        select(SHOWN, "", () => {}),
      ),
      h(
        "div",
        { class: "found" },
        this.#found,
        button("Clear", () => this.listing.clear(), { class: "small" }),
      ),
    );
    this.element = h(
      "div",
      null,
      h("ul", { class: "pair-names" }, [a, b].map(named), swap),
      h("div", { class: "columns run" }, this.#tiles, this.#spread),
      h(
        "section",
        { class: "card episodes", "aria-label": "Tasks" },
        controls,
        this.listing.problem,
        this.listing.element,
      ),
    );
  }

  #draw({
    a,
    b,
    found,
    tasks,
    better,
    worse,
    same,
    difference,
    error,
    p,
    widest,
    components,
    histogram: spread,
  }) {
    this.#widest = widest;
    this.#found.textContent =
      found === tasks ? plural(found, "task") : `${count(found)} of ${plural(tasks, "task")}`;
    const sum = (run) =>
      [plural(run.episodes, "episode"), unrewarded(run), ...run.agents.slice(0, 2)]
        .filter(Boolean)
        .join(" · ");
    fill(
      this.#tiles,
      tile("Mean reward of A", withError(a.mean, a.error), sum(a)),
      tile("Mean reward of B", withError(b.mean, b.error), sum(b)),
      tile(
        "Difference, B − A",
        [difference > 0 ? "+" : "", withError(difference, error)],
        p === null
          ? "over the tasks of both runs"
          : `p ${p < 0.001 ? "< 0.001" : `= ${Number(p.toPrecision(2))}`}, over the tasks of both runs`,
      ),
      tile("B against A", `${count(better)} better`, `${count(worse)} worse · ${count(same)} same`),
    );
    const parted = components.map((one) =>
      fact(one.name, one.difference > 0 ? "+" : "", withError(one.difference, one.error)),
    );
    fill(
      this.#spread,
      h("h2", null, "Rewards"),
      histogram({ ...spread, names: ["A", "B"] }),
      parted.length
        ? [h("h3", null, "Named rewards, B − A"), h("dl", { class: "facts" }, parted)]
        : null,
    );
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

const where = ({ environment }) => h("span", { class: "muted environment" }, environment);
const side = ({ mean, count: n }) => [
  rounded(mean),
  n > 1 ? h("span", { class: "muted of" }, ` of ${count(n)}`) : null,
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
    h(
      "div",
      { class: "columns both" },
      runs.map((run, n) => half(run, n, told[n], (id) => change(n, id))),
    ),
  );
  return null;
}

function half(run, n, told, change) {
  const head = h("h2", null, letter(n), run);
  const side = (...inside) => h("section", { "aria-label": `Run ${"AB"[n]}` }, inside);
  if (!told)
    return side(
      h(
        "div",
        { class: "card" },
        head,
        h("p", { class: "muted" }, "This run has no episode of the task."),
      ),
    );
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
  const alone = h(
    "a",
    { class: "button small", href: address(["runs", run, episode.id]) },
    "Open alone",
  );
  const brief = h(
    "p",
    { class: "brief-facts" },
    h("b", { class: "total" }, reward(episode.reward)),
    parts(episode.components),
    outcomeBadge(episode.outcome.type, told.detail, episode.reward),
    h("span", null, plural(episode.rewards.length, "call")),
    h("span", null, seconds(episode.seconds)),
  );
  const more = h(
    "details",
    { class: "more" },
    h("summary", null, "Rewards, times and tokens"),
    facts(told),
    plots(told, view),
  );
  return side(
    h("div", { class: "card" }, head, h("div", { class: "bar" }, choice, alone), brief, more),
    view.element,
  );
}
