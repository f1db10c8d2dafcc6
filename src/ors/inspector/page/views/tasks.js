// @ts-check
// The view of tasks: pages of a split of any size, a search of all, and one task as a tree.

import { environments, search, size, task, tasks } from "../api/catalogue.js";
import {
  button,
  copyButton,
  failure,
  fill,
  h,
  labelled,
  loading,
  reachable,
  select,
} from "../widgets/dom.js";
import { isObject, pretty, short } from "../api/json.js";
import { tree } from "../widgets/show.js";
import { count, plural } from "../widgets/words.js";
import { address } from "../widgets/recorded.js";

const PAGE = 25;
const TYPING_MS = 250;

/** #/tasks/ENVIRONMENT/SPLIT/INDEX: the page that INDEX is on, and that task beside it. */
export async function show(main, [environment, split, index]) {
  main.append(h("h1", null, "Tasks"), loading("tasks"));
  const all = await environments();
  const chosen = all.find((one) => one.name === environment) ?? all[0];
  const inSplit = chosen.splits.find((one) => one.name === split)?.name ?? chosen.splits[0]?.name;
  const total = await size(chosen.name, inSplit);
  main.lastChild.remove();
  const pager = new Pager(chosen.name, inSplit, total, index === undefined ? null : Number(index));
  main.append(
    h(
      "div",
      { class: "bar" },
      labelled(
        "Environment",
        select(
          all.map((one) => one.name),
          chosen.name,
          (name) => (location.hash = `#/tasks/${encodeURIComponent(name)}`),
        ),
      ),
      labelled(
        "Split",
        select(
          chosen.splits.map((one) => one.name),
          inSplit,
          (name) => (location.hash = link(chosen.name, name)),
        ),
      ),
      labelled("Search all tasks", pager.search),
    ),
    pager.element,
  );
  return pager.begin();
}

const link = (environment, split, index) =>
  address(["tasks", environment, split, ...(index === undefined ? [] : [index])]);

class Pager {
  #rows = h("tbody");
  #where = h("span", { class: "where", "aria-live": "polite" });
  #more = h("div", { class: "actions" });
  #typing = null;
  #detail = reachable(h("section", { class: "card detail-pane", "aria-label": "Task" }));
  #found = [];
  #asked = 0;
  #searched = h("p", { class: "where", "aria-live": "polite" });

  constructor(environment, split, total, index) {
    this.environment = environment;
    this.split = split;
    this.total = total;
    this.index = index;
    this.pages = total === null ? Infinity : Math.max(1, Math.ceil(total / PAGE));
    this.page = Math.min(Math.floor((index ?? 0) / PAGE), this.pages - 1);
    this.search = h("input", {
      type: "search",
      placeholder: "any text",
      on: { input: () => this.#later() },
    });
    this.number = h("input", {
      class: "page-number",
      inputmode: "numeric",
      "aria-label": "Page",
      on: { change: () => this.#go(Number(this.number.value.replace(/\D/g, "")) - 1) },
    });
    this.controls = this.#controls();
    const head = h(
      "tr",
      null,
      h("th", { scope: "col", class: "num" }, "Index"),
      h("th", { scope: "col" }, "Task"),
    );
    this.element = h(
      "div",
      { class: "columns" },
      h(
        "section",
        { class: "card", "aria-label": "Tasks" },
        this.controls,
        this.#searched,
        h("table", { class: "tasks" }, h("thead", null, head), this.#rows),
        this.#more,
      ),
      this.#detail,
    );
  }

  #controls() {
    const go = (label, name, to) =>
      button(label, () => this.#go(to()), { class: "small", "aria-label": name, title: name });
    return h(
      "div",
      { class: "pager", role: "navigation", "aria-label": "Pages" },
      go("«", "First page", () => 0),
      go("‹", "Previous page", () => this.page - 1),
      h("span", null, this.number, Number.isFinite(this.pages) ? ` of ${count(this.pages)}` : ""),
      go("›", "Next page", () => this.page + 1),
      Number.isFinite(this.pages) ? go("»", "Last page", () => this.pages - 1) : null,
      this.#where,
    );
  }

  /** Shows the first page and handles arrow keys; returns a function that stops this. */
  async begin() {
    const onKey = (event) => {
      if (
        this.controls.hidden ||
        event.target.closest("input, textarea, select, pre, .detail-pane") ||
        event.ctrlKey ||
        event.metaKey ||
        event.altKey
      )
        return;
      if (event.key === "ArrowRight") this.#go(this.page + 1);
      if (event.key === "ArrowLeft") this.#go(this.page - 1);
    };
    document.addEventListener("keydown", onKey);
    this.#showTask(this.index);
    await this.#go(this.page);
    return () => {
      this.#asked += 1; // ends a search
      clearTimeout(this.#typing);
      document.removeEventListener("keydown", onKey);
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
        this.#found = [...this.#found, ...told.found.map(({ index, task: spec }) => [index, spec])];
        at = told.next;
        this.#searched.textContent = `${plural(this.#found.length, "task")} found, ${this.#progress(at)}`;
        this.#draw(at === null ? "No task matches." : "Searching…");
      }
      fill(
        this.#more,
        at === null ? null : button("Search on", () => this.#search(wanted, at, this.#found)),
      );
    } catch (error) {
      if (asked === this.#asked) fill(this.#more, failure(error));
    }
  }

  #progress(at) {
    if (at === null)
      return this.total === null ? "all searched" : `all ${count(this.total)} searched`;
    return `${count(at)}${this.total === null ? "" : ` of ${count(this.total)}`} searched`;
  }

  async #go(page) {
    const asked = ++this.#asked;
    this.controls.hidden = false;
    this.#searched.textContent = "";
    this.page = Math.max(0, Math.min(Number.isFinite(page) ? page : 0, this.pages - 1));
    this.number.value = String(this.page + 1);
    const start = this.page * PAGE;
    try {
      const found = await tasks(
        this.environment,
        this.split,
        start,
        Math.min(start + PAGE, this.total ?? Infinity),
      );
      if (asked !== this.#asked) return;
      this.#found = found.map((spec, n) => [start + n, spec]);
      this.#where.textContent = found.length
        ? `${count(start)}–${count(start + found.length - 1)}` +
          (this.total === null ? "" : ` of ${count(this.total)} tasks`)
        : "no tasks";
      this.#draw();
    } catch (error) {
      if (asked === this.#asked)
        fill(this.#rows, h("tr", null, h("td", { colspan: 2 }, failure(error))));
    }
  }

  #draw(none = "This split has no tasks.") {
    const empty = h("tr", null, h("td", { colspan: 2, class: "muted" }, none));
    fill(
      this.#rows,
      this.#found.length ? this.#found.map(([index, spec]) => this.#row(index, spec)) : empty,
    );
  }

  #row(index, spec) {
    const current = index === this.index;
    return h(
      "tr",
      { class: current ? "chosen" : null, "data-index": index },
      h(
        "td",
        { class: "index" },
        h(
          "a",
          {
            href: link(this.environment, this.split, index),
            "aria-current": current ? "true" : null,
            on: { click: (event) => this.#choose(event, index) },
          },
          count(index),
        ),
      ),
      h(
        "td",
        { class: "spec", on: { click: (event) => this.#choose(event, index) } },
        preview(spec),
      ),
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
      row.querySelector("a")?.toggleAttribute("aria-current", row.dataset.index === String(index));
    }
    this.#showTask(index);
    // On a phone, it is below the list.
    if (matchMedia("(max-width: 900px)").matches) this.#detail.scrollIntoView();
  }

  async #showTask(index) {
    if (index === null) {
      fill(this.#detail, h("p", { class: "muted" }, "Choose a task to see it in full."));
      return;
    }
    fill(this.#detail, loading("the task"));
    try {
      const spec =
        this.#found.find(([n]) => n === index)?.[1] ??
        (await task(this.environment, this.split, index));
      if (this.index !== index) return;
      const play = `${address(["play", this.environment, this.split, index])}?open`;
      fill(
        this.#detail,
        h("h2", null, `${this.split} ${count(index)}`),
        h(
          "div",
          { class: "actions" },
          h("a", { class: "button primary", href: play }, "Play this task"),
          copyButton("Copy JSON", () => pretty(spec)),
        ),
        tree(spec),
      );
    } catch (error) {
      fill(this.#detail, failure(error));
    }
  }
}

function preview(spec) {
  if (!isObject(spec)) return short(spec, 160);
  const parts = Object.entries(spec).slice(0, 5);
  return parts.map(([key, value]) =>
    h("span", { class: "pair" }, h("span", { class: "key" }, `${key} `), short(value, 90)),
  );
}
