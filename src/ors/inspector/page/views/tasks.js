// @ts-check
// The view of tasks: pages of a split of any size, a search of all, and one task as a tree.

import { environments, search, size, task, tasks } from "../api/catalogue.js";
import {
  actions,
  arrowKeys,
  button,
  copyButton,
  el,
  failure,
  fill,
  h,
  labelled,
  loading,
  reachable,
} from "../widgets/dom.js";
import { isObject, pretty, short } from "../api/json.js";
import { tree } from "../widgets/show.js";
import { chosenSplit, splitControls } from "../widgets/split-choice.js";
import { cellsOf, emptyRow, headRow } from "../widgets/table.js";
import { count, plural } from "../widgets/words.js";
import { address } from "../widgets/recorded.js";

const PAGE = 25;
const TYPING_MS = 250;

/** #/tasks/ENVIRONMENT/SPLIT/INDEX: the page that INDEX is on, and that task beside it. */
export async function show(main, [environment, split, index]) {
  main.append(el("h1", "Tasks"), loading("tasks"));
  const all = await environments();
  const { chosen, inSplit } = chosenSplit(all, environment, split);
  const total = await size(chosen.name, inSplit);
  main.lastChild.remove();
  const pager = new Pager(chosen.name, inSplit, total, index === undefined ? null : Number(index));
  main.append(
    el(
      "div.bar",
      splitControls("tasks", all, chosen, inSplit),
      labelled("Search all tasks", pager.search),
    ),
    pager.element,
  );
  return pager.begin();
}

/** @type {import("../widgets/table.js").Column<any>[]} */
const COLUMNS = [
  { title: "Index", class: "num index", cell: linkOf },
  { title: "Task", class: "spec", cell: ({ task: spec }) => preview(spec) },
];

function linkOf({ index, href, current }) {
  return h("a", { href, "aria-current": current ? "true" : null }, count(index));
}

class Pager {
  #rows = h("tbody");
  #where = h("span.where", { "aria-live": "polite" });
  #more = actions();
  #typing = null;
  #detail = reachable(h("section.card.detail-pane", { "aria-label": "Task" }));
  #found = [];
  #asked = 0;
  #searched = h("p.where", { "aria-live": "polite" });

  constructor(environment, split, total, index) {
    this.environment = environment;
    this.split = split;
    this.total = total;
    this.index = index;
    this.of = total === null ? "" : ` of ${count(total)}`;
    this.pages = total === null ? Infinity : Math.max(1, Math.ceil(total / PAGE));
    this.page = Math.min(Math.floor((index ?? 0) / PAGE), this.pages - 1);
    this.search = h("input", {
      type: "search",
      placeholder: "any text",
      on: { input: () => this.#later() },
    });
    this.number = h("input.page-number", {
      inputmode: "numeric",
      "aria-label": "Page",
      on: { change: () => this.#go(Number(this.number.value.replace(/\D/g, "")) - 1) },
    });
    this.controls = this.#controls();
    this.element = el(
      "div.columns",
      h(
        "section.card",
        { "aria-label": "Tasks" },
        this.controls,
        this.#searched,
        el("table.tasks", el("thead", headRow(COLUMNS)), this.#rows),
        this.#more,
      ),
      this.#detail,
    );
  }

  #controls() {
    const go = (label, name, to) =>
      button(label, () => this.#go(to()), { class: "small", "aria-label": name });
    return h(
      "div.pager",
      { role: "navigation", "aria-label": "Pages" },
      go("«", "First page", () => 0),
      go("‹", "Previous page", () => this.page - 1),
      el("span", this.number, Number.isFinite(this.pages) ? ` of ${count(this.pages)}` : ""),
      go("›", "Next page", () => this.page + 1),
      Number.isFinite(this.pages) ? go("»", "Last page", () => this.pages - 1) : null,
      this.#where,
    );
  }

  /** Shows the first page and handles arrow keys; returns a function that stops this. */
  async begin() {
    const stop = arrowKeys((step) => this.controls.hidden || this.#go(this.page + step));
    this.#showTask(this.index);
    await this.#go(this.page);
    return () => {
      this.#asked += 1; // ends a search
      clearTimeout(this.#typing);
      stop();
    };
  }

  #later() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => {
      fill(this.#more);
      if (this.search.value.trim() === "") this.#go(this.page);
      else this.#search(this.search.value.trim(), 0, []);
    }, TYPING_MS);
  }

  /** Searches part by part, until a page is full or all tasks were searched. */
  async #search(wanted, start, before) {
    const asked = ++this.#asked;
    this.controls.hidden = true;
    this.#found = before;
    let at = start;
    const enough = before.length + PAGE;
    try {
      while (at !== null && this.#found.length < enough) {
        const told = await search(this.environment, this.split, wanted, at, this.total);
        if (asked !== this.#asked) return;
        this.#found = [...this.#found, ...told.found];
        at = told.next;
        const searched =
          at === null ? `all${this.of.replace(" of", "")}` : `${count(at)}${this.of}`;
        this.#searched.textContent = `${plural(this.#found.length, "task")} found, ${searched} searched`;
        this.#draw(at === null ? "No task matches." : "Searching…");
      }
      const on = at !== null && button("Search on", () => this.#search(wanted, at, this.#found));
      fill(this.#more, on);
    } catch (error) {
      if (asked === this.#asked) fill(this.#more, failure(error));
    }
  }

  async #go(page) {
    const asked = ++this.#asked;
    this.controls.hidden = false;
    this.#searched.textContent = "";
    this.page = Math.max(0, Math.min(page || 0, this.pages - 1));
    this.number.value = String(this.page + 1);
    const start = this.page * PAGE;
    const stop = Math.min(start + PAGE, this.total ?? Infinity);
    try {
      const found = await tasks(this.environment, this.split, start, stop);
      if (asked !== this.#asked) return;
      this.#found = found.map((one, n) => ({ index: start + n, task: one }));
      const last = start + found.length - 1;
      this.#where.textContent = found.length
        ? `${count(start)}–${count(last)}${this.of && `${this.of} tasks`}`
        : "no tasks";
      this.#draw("This split has no tasks.");
    } catch (error) {
      if (asked === this.#asked) fill(this.#rows, emptyRow(COLUMNS, failure(error)));
    }
  }

  #draw(none) {
    const rows = this.#found.map((one) => this.#row(one));
    fill(this.#rows, rows.length ? rows : emptyRow(COLUMNS, none));
  }

  #row(one) {
    const { index } = one;
    const current = index === this.index;
    const href = link(this.environment, this.split, index);
    return h(
      "tr",
      {
        class: current ? "chosen" : null,
        "data-index": index,
        on: { click: (event) => this.#choose(event, index) },
      },
      cellsOf(COLUMNS, { ...one, href, current }),
    );
  }

  #choose(event, index) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.index = index;
    // Not a new view, so that page, search and focus stay.
    history.replaceState(null, "", link(this.environment, this.split, index));
    for (const row of this.#rows.children) {
      row.classList.toggle("chosen", row.dataset.index === String(index));
      row.querySelector("a").toggleAttribute("aria-current", row.dataset.index === String(index));
    }
    this.#showTask(index);
    // On a phone, it is below the list.
    if (matchMedia("(max-width: 900px)").matches) this.#detail.scrollIntoView();
  }

  async #showTask(index) {
    if (index === null) {
      fill(this.#detail, el("p.muted", "Choose a task to see it in full."));
      return;
    }
    fill(this.#detail, loading("the task"));
    try {
      const known = this.#found.find((one) => one.index === index);
      const spec = known ? known.task : await task(this.environment, this.split, index);
      if (this.index !== index) return;
      const play = `${address(["play", this.environment, this.split, index])}?open`;
      fill(
        this.#detail,
        el("h2", `${this.split} ${count(index)}`),
        actions(
          h("a.button.primary", { href: play }, "Play this task"),
          copyButton("Copy JSON", () => pretty(spec)),
        ),
        tree(spec),
      );
    } catch (error) {
      fill(this.#detail, failure(error));
    }
  }
}

const link = (environment, split, index) => address(["tasks", environment, split, index]);

function preview(spec) {
  if (!isObject(spec)) return short(spec, 160);
  const parts = Object.entries(spec).slice(0, 5);
  return parts.map(([key, value]) => el("span.pair", el("span.key", `${key} `), short(value, 90)));
}
