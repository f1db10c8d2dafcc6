// @ts-check
// The view of recorded runs: all of them, one with its episodes, one episode.

import { fill, h, loading } from "../widgets/dom.js";
import { sortHead } from "../widgets/grid.js";
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
import { cellsOf } from "../widgets/table.js";
import { count, plural, when } from "../widgets/words.js";

/** #/runs, #/runs/RUN?FILTERS or #/runs/RUN/EPISODE?FILTERS */
export async function show(main, parts, state) {
  if (!about.runs) {
    main.append(h("h1", null, "Runs"), h("p", { class: "note" }, ABSENT));
    return null;
  }
  if (parts.length > 1) return rollout.show(main, parts, state);
  if (parts.length === 1) return one.show(main, parts, state);
  main.append(h("h1", null, "Runs"), loading("runs"));
  const view = new RunList();
  await view.look();
  main.lastChild.remove();
  main.append(view.element);
  return watch(() => view.look());
}

/** @type {import("../widgets/table.js").Column<import("../api/types.js").RunSummary>[]} */
const COLUMNS = [
  { title: "Run", order: "run", key: (run) => run.name, cell: nameOf },
  {
    title: "Agent",
    class: "wide",
    order: "agent",
    key: (run) => run.agents?.[0],
    cell: (run) => listed(run.agents),
  },
  {
    title: "Environment",
    class: "wide",
    order: "environment",
    key: (run) => run.environments?.[0],
    cell: (run) => listed(run.environments),
  },
  {
    title: "Episodes",
    class: "num",
    order: "episodes",
    key: (run) => run.episodes,
    cell: (run) => count(run.episodes),
  },
  { title: "Mean reward", class: "num", order: "mean", key: (run) => run.mean, cell: meanOf },
  {
    title: "Outcomes",
    class: "outcomes",
    order: "scored",
    key: (run) => (run.outcomes?.scored ?? 0) / (run.episodes || 1),
    cell: (run) => outcomeStrip(run.outcomes, run.mean),
  },
  {
    title: "Changed",
    class: "num wide",
    order: "changed",
    key: (run) => run.changed,
    cell: (run) => h("span", { class: "muted" }, when(run.changed)),
  },
];

function nameOf(run) {
  return [
    h("a", { class: "run-name", href: address(["runs", run.name]) }, run.name),
    " ",
    runState(run),
  ];
}

function meanOf(run) {
  const missing = unrewarded(run);
  return [withError(run.mean, run.error), missing ? h("div", { class: "muted" }, missing) : null];
}

/** The order of two values; what is missing comes first. */
function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

class RunList {
  #rows = h("tbody");
  #total = h("span", { class: "muted" });
  #compare = h("a", { class: "button small", role: "link" }, "Compare");
  #chosen = new Set();

  #sort = "-changed";
  #head = h("tr");

  constructor() {
    this.element = h(
      "section",
      { class: "card", "aria-label": "Runs" },
      h(
        "div",
        { class: "bar runs-bar" },
        this.#total,
        h("span", { class: "grow" }),
        h("span", { class: "hint" }, "Choose two runs to compare them."),
        this.#compare,
      ),
      h("table", { class: "runs" }, h("thead", null, this.#head), this.#rows),
      stripLegend(),
    );
    this.#drawHead();
  }

  #drawHead() {
    const pick = h(
      "th",
      { scope: "col", class: "pick" },
      h("span", { class: "offscreen" }, "Choose"),
    );
    fill(
      this.#head,
      pick,
      COLUMNS.map(({ title, class: kind, order }) =>
        sortHead({ title, kind, order, sort: this.#sort, turn: (sort) => this.#sortBy(sort) }),
      ),
    );
  }

  #sortBy(sort) {
    this.#sort = sort;
    this.#drawHead();
    this.#head.querySelector(`[data-order="${sort.replace("-", "")}"]`).focus();
    return this.look();
  }

  async look() {
    const { runs } = await recorded("");
    const down = this.#sort.startsWith("-");
    const { key } = COLUMNS.find(({ order }) => order === this.#sort.replace("-", ""));
    runs.sort((a, b) => (down ? -1 : 1) * compared(key(a), key(b)));
    this.#total.textContent = plural(runs.length, "run");
    // Unchanged rows are reused, so that they keep the pointer and the focus.
    const old = new Map([...this.#rows.children].map((row) => [row.dataset.run, row]));
    const rows = runs.map((run) =>
      old.get(run.name)?.told === JSON.stringify(run) ? old.get(run.name) : this.#row(run),
    );
    if (rows.length === 0)
      rows.push(
        h(
          "tr",
          null,
          h(
            "td",
            { colspan: 8, class: "muted empty" },
            "No runs yet. They appear here as they are recorded.",
          ),
        ),
      );
    if (
      rows.length !== this.#rows.children.length ||
      rows.some((row, n) => row !== this.#rows.children[n])
    )
      this.#replace(rows);
    this.#mark();
  }

  #replace(rows) {
    const focused = this.#rows.contains(document.activeElement)
      ? [document.activeElement.closest("tr").dataset.run, document.activeElement.tagName]
      : null;
    fill(this.#rows, rows);
    const row = focused && rows.find((one) => one.dataset.run === focused[0]);
    row?.querySelector(focused[1])?.focus({ preventScroll: true });
  }

  #row(run) {
    const pick = h("input", {
      type: "checkbox",
      checked: this.#chosen.has(run.name),
      "aria-label": `Compare ${run.name}`,
      on: { change: () => this.#pick(run.name, pick.checked) },
    });
    const unread = run.problem
      ? h("span", { class: "problem" }, run.problem)
      : h("span", { class: "muted" }, "Reading…");
    const [name, ...others] = COLUMNS;
    const rest =
      run.episodes === undefined
        ? h("td", { colspan: others.length }, unread)
        : cellsOf(others, run);
    const row = h(
      "tr",
      { "data-run": run.name },
      h("td", { class: "pick" }, run.problem ? null : pick),
      cellsOf([name], run),
      rest,
    );
    row.told = JSON.stringify(run);
    return row;
  }

  #pick(name, picked) {
    if (picked) this.#chosen.add(name);
    else this.#chosen.delete(name);
    this.#mark();
  }

  #mark() {
    const pair = [...this.#chosen];
    const ready = pair.length === 2;
    this.#compare.classList.toggle("primary", ready);
    this.#compare.setAttribute("aria-disabled", String(!ready));
    if (ready) this.#compare.href = address(["compare", ...pair]);
    else this.#compare.removeAttribute("href");
    for (const pick of this.#rows.querySelectorAll("input")) pick.disabled = ready && !pick.checked;
  }
}

const listed = (names) =>
  names.length > 2 ? `${names[0]} and ${count(names.length - 1)} more` : names.join(", ");
