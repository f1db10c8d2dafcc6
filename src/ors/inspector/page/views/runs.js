// @ts-check
// The view of recorded runs: all of them, one with its episodes, one episode.

import { el, h, loading } from "../widgets/dom.js";
import * as one from "./run.js";
import {
  ABSENT,
  address,
  outcomeStrip,
  recorded,
  runState,
  stripLegend,
  unrewarded,
  watch,
  withError,
} from "../widgets/recorded.js";
import * as rollout from "./recorded-episode.js";
import { about } from "../api/server.js";
import { sortedHead, Table } from "../widgets/table.js";
import { count, plural, when } from "../widgets/words.js";

/** #/runs, #/runs/RUN?FILTERS or #/runs/RUN/EPISODE?FILTERS */
export async function show(main, parts, state) {
  if (!about.runs) {
    main.append(el("h1", "Runs"), el("p.note", ABSENT));
    return null;
  }
  if (parts.length > 1) return rollout.show(main, parts, state);
  if (parts.length === 1) return one.show(main, parts, state);
  main.append(el("h1", "Runs"), loading("runs"));
  const view = new RunList();
  await view.look();
  main.lastChild.remove();
  main.append(view.element);
  return watch(() => view.look());
}

/** The cell of a run that has been read; of others, only the name is known. */
const ofRead = (cell) => (run) => (run.episodes === undefined ? null : cell(run));

/** @type {import("../widgets/table.js").Column<import("../api/types.js").RunSummary>[]} */
const COLUMNS = [
  { title: "Run", order: "run", key: (run) => run.name, cell: nameOf },
  {
    title: "Agent",
    class: "wide",
    order: "agent",
    key: (run) => run.agents?.[0],
    cell: ofRead((run) => listed(run.agents)),
  },
  {
    title: "Environment",
    class: "wide",
    order: "environment",
    key: (run) => run.environments?.[0],
    cell: ofRead((run) => listed(run.environments)),
  },
  {
    title: "Episodes",
    class: "num",
    order: "episodes",
    key: (run) => run.episodes,
    cell: ofRead((run) => count(run.episodes)),
  },
  {
    title: "Mean reward",
    class: "num",
    order: "mean",
    key: (run) => run.mean,
    cell: ofRead(meanOf),
  },
  {
    title: "Outcomes",
    class: "outcomes",
    order: "scored",
    key: (run) => (run.outcomes?.scored ?? 0) / (run.episodes || 1),
    cell: ofRead((run) => outcomeStrip(run.outcomes, run.mean)),
  },
  {
    title: "Changed",
    class: "num wide",
    order: "changed",
    key: (run) => run.changed,
    cell: ofRead((run) => el("span.muted", when(run.changed))),
  },
];

function nameOf(run) {
  const link = h("a.run-name", { href: address(["runs", run.name]) }, run.name);
  if (run.problem) return [link, el("div.problem", run.problem)];
  const reading = run.episodes === undefined && el("div.muted", "Reading…");
  return [link, " ", runState(run), reading];
}

function meanOf(run) {
  const missing = unrewarded(run);
  return [withError(run.mean, run.error), missing ? el("div.muted", missing) : null];
}

/** The order of two values; what is missing comes first. */
function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

class RunList {
  #total = el("span.muted");
  #compare = h("a.button.small", { role: "link" }, "Compare");
  #chosen = new Set();
  #sort = "-changed";
  #table;

  constructor() {
    const columns = [
      { title: "Choose", untitled: true, class: "pick", cell: (run) => this.#pick(run) },
      ...COLUMNS,
    ];
    this.#table = new Table({
      kind: "runs",
      columns,
      mark: "data-run",
      key: ({ name }) => name,
      empty: "No runs yet. They appear here as they are recorded.",
      head: sortedHead(columns, this.#sort, (sort) => this.#sortBy(sort)),
    });
    this.element = h(
      "section.card",
      { "aria-label": "Runs" },
      el(
        "div.bar.runs-bar",
        this.#total,
        el("span.grow"),
        el("span.hint", "Choose two runs to compare them."),
        this.#compare,
      ),
      this.#table.element,
      stripLegend(),
    );
  }

  #sortBy(sort) {
    this.#sort = sort;
    return this.look();
  }

  async look() {
    const { runs } = await recorded("");
    const down = this.#sort.startsWith("-");
    const { key } = COLUMNS.find(({ order }) => order === this.#sort.replace("-", ""));
    runs.sort((a, b) => (down ? -1 : 1) * compared(key(a), key(b)));
    this.#total.textContent = plural(runs.length, "run");
    this.#table.draw(runs);
    this.#mark();
  }

  #pick({ name, problem }) {
    if (problem) return null;
    const onChange = () => {
      if (pick.checked) this.#chosen.add(name);
      else this.#chosen.delete(name);
      this.#mark();
    };
    const pick = h("input", {
      type: "checkbox",
      checked: this.#chosen.has(name),
      "aria-label": `Compare ${name}`,
      on: { change: onChange },
    });
    return pick;
  }

  #mark() {
    const pair = [...this.#chosen];
    const ready = pair.length === 2;
    this.#compare.classList.toggle("primary", ready);
    this.#compare.setAttribute("aria-disabled", String(!ready));
    if (ready) this.#compare.href = address(["compare", ...pair]);
    else this.#compare.removeAttribute("href");
    for (const pick of this.element.querySelectorAll("input"))
      pick.disabled = ready && !pick.checked;
  }
}

const listed = (names) =>
  names.length > 2 ? `${names[0]} and ${count(names.length - 1)} more` : names.join(", ");
