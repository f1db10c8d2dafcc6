// The view of recorded runs: all of them, one with its episodes, one episode.

import { fill, h, loading } from "./dom.js";
import * as one from "./run.js";
import { ABSENT, address, outcomeStrip, recorded, runState, watch, withError } from "./recorded.js";
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
  #told = "";

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
    const told = JSON.stringify(runs);
    if (told === this.#told) return;
    this.#told = told;
    this.#total.textContent = plural(runs.length, "run");
    const focused = document.activeElement?.closest("tr[data-run]")?.dataset.run;
    fill(this.#rows, runs.length ? runs.map((run) => this.#row(run)) : h("tr", null, h("td", { colspan: 8, class: "muted empty" }, "No runs yet. They appear here as they are recorded.")));
    this.#mark();
    for (const row of this.#rows.children) if (focused !== undefined && row.dataset.run === focused) row.querySelector("input").focus();
  }

  #row(run) {
    const pick = h("input", { type: "checkbox", checked: this.#chosen.has(run.name), "aria-label": `Compare ${run.name}`, on: { change: () => this.#pick(run.name, pick.checked) } });
    return h(
      "tr",
      { "data-run": run.name },
      h("td", { class: "pick" }, pick),
      h("td", null, h("a", { class: "run-name", href: address(["runs", run.name]) }, run.name), " ", runState(run)),
      h("td", { class: "wide" }, listed(run.agents)),
      h("td", { class: "wide" }, listed(run.environments)),
      h("td", { class: "num" }, count(run.episodes)),
      h("td", { class: "num" }, withError(run.mean, run.error)),
      h("td", { class: "outcomes" }, outcomeStrip(run.outcomes)),
      h("td", { class: "num wide muted" }, when(run.changed)),
    );
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
    this.#compare.toggleAttribute("aria-disabled", !ready);
    if (ready) this.#compare.href = address(["compare", ...pair]);
    else this.#compare.removeAttribute("href");
    for (const pick of this.#rows.querySelectorAll("input")) pick.disabled = ready && !pick.checked;
  }
}

const listed = (names) => (names.length > 2 ? `${names[0]} and ${count(names.length - 1)} more` : names.join(", "));
