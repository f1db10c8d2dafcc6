// @ts-check
// A table of any length: only the rows in sight exist, and only their pages are fetched.

import { el, failure, fill, h } from "./dom.js";
import { cellsOf, redraw, sortedHead } from "./table.js";
import { count } from "./words.js";

const PAGE = 100;
const ROW = 40; // pixels, as in runs.css
const MARGIN = 12; // rows above and below those in sight
const STEP = 8; // rows that are scrolled before others are drawn
const SETTLED_MS = 60;
const bar = document.getElementById("bar");

export class Grid {
  #pages = new Map();
  #stale = new Map(); // shown until the new pages are there
  #asked = new Set();
  #rows = new Map();
  #turn = 0;
  #above = h("td");
  #below = h("td");
  #body = h("tbody");
  #settled = null;
  #columns;
  #load;

  /**
   * `columns` that have an `order` can be sorted by it. The first link in a row opens it.
   * `load(offset, limit)` fetches `{found, rows}`.
   */
  constructor({ label, columns, load, sort, onSort, onMove, empty }) {
    this.found = 0;
    this.empty = empty;
    this.#columns = columns;
    this.#load = load;
    this.onMove = onMove;
    const spacer = (cell) => h("tbody.spacer", { "aria-hidden": "true" }, el("tr", cell));
    this.element = h(
      "table.grid",
      { "aria-label": label },
      sortedHead(columns, sort, onSort),
      spacer(this.#above),
      this.#body,
      spacer(this.#below),
    );
    this.#body.addEventListener("keydown", (event) => this.#key(event));
    this.#body.addEventListener("click", (event) => this.#click(event));
  }

  /** Watches the window's scrolling; returns a function that stops this. */
  begin() {
    const onScroll = () => {
      this.#show();
      clearTimeout(this.#settled);
      this.#settled = setTimeout(() => this.#settle(), SETTLED_MS);
    };
    const sizes = new ResizeObserver(() => {
      document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
      onScroll();
    });
    sizes.observe(bar);
    sizes.observe(document.body);
    window.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      this.#turn += 1;
      clearTimeout(this.#settled);
      sizes.disconnect();
      window.removeEventListener("scroll", onScroll);
    };
  }

  /** Shows another selection of rows, of which one page is there. */
  restart(page, { found, rows }) {
    this.#forget();
    this.#stale = new Map();
    this.#take(page, { found, rows });
  }

  /** Fetches the rows in sight again: there are other ones now. Until they are there, the old ones stay. */
  async again(found) {
    this.found = found;
    this.#stale = new Map([...this.#stale, ...this.#pages]);
    this.#forget();
    await this.#fetchInSight();
  }

  #forget() {
    this.#turn += 1;
    this.#pages = new Map();
    this.#asked = new Set();
  }

  #take(page, { found, rows }) {
    this.found = found;
    this.#pages.set(page, rows);
    this.#asked.add(page);
    this.#show();
  }

  /** The index of the first row below the bar. */
  get first() {
    return Math.max(0, Math.floor((bar.offsetHeight - this.#top()) / ROW));
  }

  /** Scrolls until a row is the first one in sight. */
  scrollTo(row) {
    window.scrollTo(
      0,
      window.scrollY + this.#top() - bar.offsetHeight + Math.min(row, this.found) * ROW,
    );
  }

  /** The number of columns in sight: a phone shows fewer, and a wider cell would bring back empty ones. */
  #width() {
    return (
      [...this.element.tHead.rows[0].cells].filter((cell) => cell.getClientRects().length).length ||
      1
    );
  }

  #top() {
    return this.element.getBoundingClientRect().top;
  }

  #range() {
    const top = this.#top();
    const from = Math.floor((bar.offsetHeight - top) / ROW / STEP) * STEP - MARGIN;
    const to = Math.ceil((window.innerHeight - top) / ROW / STEP) * STEP + MARGIN;
    return [Math.max(0, Math.min(from, this.found - 1)), Math.max(0, Math.min(to, this.found))];
  }

  async #fetch(page) {
    if (this.#asked.has(page)) return;
    this.#asked.add(page);
    const turn = this.#turn;
    try {
      const { found, rows } = await this.#load(page * PAGE, PAGE);
      if (turn === this.#turn) this.#take(page, { found, rows });
    } catch (error) {
      if (turn !== this.#turn) return;
      this.#asked.delete(page);
      if (this.#rows.size === 0)
        fill(this.#body, el("tr", h("td", { colspan: this.#width() }, failure(error))));
    }
  }

  async #fetchInSight() {
    const [from, to] = this.#range();
    const pages = [];
    for (let page = Math.floor(from / PAGE); page === 0 || page * PAGE < to; page++)
      pages.push(this.#fetch(page));
    await Promise.all(pages);
  }

  #settle() {
    this.#fetchInSight();
    this.onMove(this.first);
  }

  #at(n) {
    const page = Math.floor(n / PAGE);
    return (this.#pages.get(page) ?? this.#stale.get(page))?.[n % PAGE];
  }

  #show() {
    const [from, to] = this.#range();
    this.element.setAttribute("aria-rowcount", String(this.found + 1));
    this.#above.style.height = `${from * ROW}px`;
    this.#below.style.height = `${(this.found - to) * ROW}px`;
    const rows = new Map();
    for (let n = from; n < to; n++) rows.set(n, this.#row(n));
    this.#rows = rows;
    redraw(this.#body, "data-row", () => (rows.size ? [...rows.values()] : [this.#empty()]));
    if ([...rows.keys()].some((n) => !this.#at(n))) {
      clearTimeout(this.#settled);
      this.#settled = setTimeout(() => this.#settle(), SETTLED_MS);
    }
  }

  #empty() {
    return el("tr", h("td", { colspan: this.#width(), class: "muted empty" }, this.empty));
  }

  #row(n) {
    const value = this.#at(n);
    const old = this.#rows.get(n);
    if (old && old.value === value) return old;
    const cells = value
      ? cellsOf(this.#columns, value)
      : this.#columns.map((_, k) => el("td.muted", k ? "" : `${count(n + 1)} …`));
    const row = h("tr", { "data-row": n, "aria-rowindex": n + 2 }, cells);
    row.value = value;
    return row;
  }

  #click(event) {
    const row = event.target.closest("tr[data-row]");
    if (
      !row ||
      event.target.closest("a, button, input") ||
      event.ctrlKey ||
      event.metaKey ||
      event.shiftKey
    )
      return;
    if (getSelection().isCollapsed) row.querySelector("a")?.click();
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tr[data-row]");
    if (!step || !row || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = this.#rows.get(Number(row.dataset.row) + step);
    next?.querySelector("a")?.focus({ preventScroll: true });
    next?.scrollIntoView({ block: "nearest" });
  }
}
