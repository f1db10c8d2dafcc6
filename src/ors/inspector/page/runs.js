// The view of recorded runs: all of them, one with its episodes, one episode.

import { fill, h, loading } from "./dom.js";
import * as one from "./run.js";
import { ABSENT, address, outcomeStrip, recorded, runState, unrewarded, watch, withError } from "./recorded.js";
import * as rollout from "./rollout.js";
import { about } from "./server.js";
import { count, plural, when } from "./words.js";

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

class RunList {
  #rows = h("tbody");
  #total = h("span", { class: "muted" });
  #compare = h("a", { class: "button small", role: "link" }, "Compare");
  #chosen = new Set();

  constructor() {
    const heads = [["", "pick"], ["Run", ""], ["Agent", "wide"], ["Environment", "wide"], ["Episodes", "num"], ["Mean reward", "num"], ["Outcomes", "outcomes"], ["Changed", "num wide"]];
    this.element = h(
      "section",
      { class: "card", "aria-label": "Runs" },
      h("div", { class: "bar runs-bar" }, this.#total, h("span", { class: "grow" }), h("span", { class: "hint" }, "Choose two runs to compare them."), this.#compare),
      h("table", { class: "runs" }, h("thead", null, h("tr", null, heads.map(([title, kind]) => h("th", { scope: "col", class: kind }, title || h("span", { class: "offscreen" }, "Choose"))))), this.#rows),
    );
  }

  async look() {
    const { runs } = await recorded("");
    this.#total.textContent = plural(runs.length, "run");
    // Unchanged rows are reused, so that they keep the pointer and the focus.
    const old = new Map([...this.#rows.children].map((row) => [row.dataset.run, row]));
    const rows = runs.map((run) => (old.get(run.name)?.told === JSON.stringify(run) ? old.get(run.name) : this.#row(run)));
    if (rows.length === 0) rows.push(h("tr", null, h("td", { colspan: 8, class: "muted empty" }, "No runs yet. They appear here as they are recorded.")));
    if (rows.length !== this.#rows.children.length || rows.some((row, n) => row !== this.#rows.children[n])) this.#replace(rows);
    this.#mark();
  }

  #replace(rows) {
    const focused = this.#rows.contains(document.activeElement) ? [document.activeElement.closest("tr").dataset.run, document.activeElement.tagName] : null;
    fill(this.#rows, rows);
    const row = focused && rows.find((one) => one.dataset.run === focused[0]);
    row?.querySelector(focused[1])?.focus({ preventScroll: true });
  }

  #row(run) {
    const pick = h("input", { type: "checkbox", checked: this.#chosen.has(run.name), "aria-label": `Compare ${run.name}`, on: { change: () => this.#pick(run.name, pick.checked) } });
    const name = h("td", null, h("a", { class: "run-name", href: address(["runs", run.name]) }, run.name), " ", runState(run));
    const unread = run.problem ? h("span", { class: "problem" }, run.problem) : h("span", { class: "muted" }, "Reading…");
    const cells = run.episodes === undefined ? h("td", { colspan: 6 }, unread) : figures(run);
    const row = h("tr", { "data-run": run.name }, h("td", { class: "pick" }, run.problem ? null : pick), name, cells);
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

const figures = (run) => [
  h("td", { class: "wide" }, listed(run.agents)),
  h("td", { class: "wide" }, listed(run.environments)),
  h("td", { class: "num" }, count(run.episodes)),
  h("td", { class: "num" }, withError(run.mean, run.error), unrewarded(run) ? h("div", { class: "muted" }, unrewarded(run)) : null),
  h("td", { class: "outcomes" }, outcomeStrip(run.outcomes)),
  h("td", { class: "num wide muted" }, when(run.changed)),
];

const listed = (names) => (names.length > 2 ? `${names[0]} and ${count(names.length - 1)} more` : names.join(", "));
