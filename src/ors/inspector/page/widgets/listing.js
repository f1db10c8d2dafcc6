// @ts-check
// A grid whose rows the server selects; its order, its filters and its place are in the address.

import { button, el, failure, fill, h } from "./dom.js";
import { Grid } from "./grid.js";
import { address, query, recorded, watch } from "./recorded.js";
import { count, plural } from "./words.js";

const PAGE = 100;
const TYPING_MS = 200;

export class Listing {
  #version = null;
  #waiting = null;
  #grid;
  #fixed;
  #told;
  #form;
  #what;
  #label;
  #noun;
  #problem = el("div");
  #count = h("span.where", { "aria-live": "polite" });

  /**
   * `what` with `fixed` is the request for rows; `parts` is the address of this view.
   * `told(answer)` shows everything in an answer but its rows, and returns how many there are in all.
   */
  constructor({ what, fixed, parts, filters, row, noun, columns, told }) {
    this.parts = parts;
    this.filters = filters;
    this.row = row;
    this.#what = what;
    this.#fixed = fixed;
    this.#told = told;
    this.#noun = noun;
    this.#label = `${noun[0].toUpperCase()}${noun.slice(1)}s`;
    this.#grid = new Grid({
      label: this.#label,
      columns,
      empty: `No ${noun} matches.`,
      sort: filters.sort,
      load: (offset, limit) => this.#ask({ offset, limit }),
      onSort: (sort) => this.filter({ sort }),
      onMove: (at) => this.#moved(at),
    });
  }

  /** Fetches the first rows, shows `element` and follows the data; returns a function that stops this. */
  async show(main, element) {
    await this.#look();
    main.lastChild.remove();
    main.append(element);
    const stops = [this.#grid.begin(), watch(() => this.#look())];
    if (this.row > 0) this.#grid.scrollTo(this.row);
    return () => {
      clearTimeout(this.#waiting);
      stops.forEach((stop) => stop());
    };
  }

  /** The rows as a card, below controls whose names are those of filters. */
  card(...controls) {
    const onInput = ({ target }) => this.#later(target.tagName === "SELECT" ? 0 : TYPING_MS);
    const clear = () =>
      this.filter(Object.fromEntries(Object.keys(this.#given).map((name) => [name, ""])));
    this.#form = h(
      "form.bar.filters",
      {
        role: "search",
        "aria-label": this.#label,
        on: { input: onInput, submit: (event) => event.preventDefault() },
      },
      controls,
      el("div.found", this.#count, button("Clear", clear, { class: "small" })),
    );
    this.#write();
    return h(
      "section.card.episodes",
      { "aria-label": this.#label },
      this.#form,
      this.#problem,
      this.#grid.element,
    );
  }

  get #given() {
    return Object.fromEntries(new FormData(this.#form));
  }

  #write() {
    for (const control of this.#form.elements)
      if (control.name && control.value !== this.filters[control.name])
        control.value = this.filters[control.name];
  }

  /** Changes the order or filters. */
  async filter(change) {
    clearTimeout(this.#waiting);
    Object.assign(this.filters, change);
    this.#write();
    this.row = 0;
    this.#keep();
    this.#version = null;
    await this.#look();
  }

  /** A link from a row to a view below this one, which keeps the state for the way back. */
  link(more, ...children) {
    return h("a", { href: this.#address(more), "data-more": JSON.stringify(more) }, children);
  }

  #address(more = []) {
    return address([...this.parts, ...more], { ...this.filters, row: this.row || "" });
  }

  #later(wait) {
    clearTimeout(this.#waiting);
    this.#waiting = setTimeout(() => this.filter(this.#given), wait);
  }

  #moved(row) {
    if (row === this.row) return;
    this.row = row;
    this.#keep();
  }

  #keep() {
    history.replaceState(null, "", this.#address());
    for (const link of this.#grid.element.querySelectorAll("a[data-more]"))
      link.href = this.#address(JSON.parse(link.dataset.more));
  }

  #ask(more) {
    return recorded(this.#what, { ...this.#fixed, ...this.filters, ...more });
  }

  #restart(page, told) {
    this.#grid.restart(page, told);
    // Another selection begins at its first row.
    if (this.#grid.element.isConnected && this.#grid.first > 0) this.#grid.scrollTo(0);
  }

  async #look() {
    const first = this.#version === null;
    const asked = query(this.filters);
    const offset = first ? Math.floor(this.row / PAGE) * PAGE : 0;
    try {
      const told = await this.#ask({ known: this.#version, offset, limit: PAGE });
      if (asked !== query(this.filters)) return; // another selection is on its way
      fill(this.#problem);
      if (told.unchanged) return;
      this.#version = told.version;
      const total = this.#told(told);
      const all = plural(total, this.#noun);
      this.#count.textContent = told.found === total ? all : `${count(told.found)} of ${all}`;
      if (first) this.#restart(offset / PAGE, told);
      else await this.#grid.again(told.found);
    } catch (error) {
      if (!this.#grid.element.isConnected) throw error;
      fill(this.#problem, failure(error));
    }
  }
}
