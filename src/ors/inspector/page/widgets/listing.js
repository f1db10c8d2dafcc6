// @ts-check
// A grid whose rows the server selects; its order, its filters and its place are in the address.

import { failure, fill, h, labelled } from "./dom.js";
import { Grid } from "./grid.js";
import { address, query, recorded, watch } from "./recorded.js";

const PAGE = 100;
const TYPING_MS = 200;

export class Listing {
  #version = null;
  #waiting = null;
  #grid;
  #fixed;
  #told;
  #fields = {};
  #what;

  /**
   * `what` with `fixed` is the request for rows; `parts` is the address of this view.
   * `told(answer)` shows everything in an answer but its rows.
   */
  constructor({ what, fixed, parts, filters, row, label, columns, told, empty }) {
    this.parts = parts;
    this.filters = filters;
    this.row = row;
    this.#what = what;
    this.#fixed = fixed;
    this.#told = told;
    this.problem = h("div");
    this.#grid = new Grid({
      label,
      columns,
      empty,
      sort: filters.sort,
      load: (offset, limit) => this.#ask({ offset, limit }),
      onSort: (sort) => this.filter({ sort }),
      onMove: (at) => this.#moved(at),
    });
    this.element = this.#grid.element;
  }

  /** Fetches the first rows and follows the data; returns a function that stops this. */
  async begin() {
    await this.#look();
    const stops = [this.#grid.begin(), watch(() => this.#look())];
    return () => {
      clearTimeout(this.#waiting);
      stops.forEach((stop) => stop());
    };
  }

  /** Scrolls to the row of the address, once the element is on the page. */
  restore() {
    if (this.row > 0) this.#grid.scrollTo(this.row);
  }

  /** Ties a control to the filter of a name. */
  field(name, control) {
    this.#fields[name] = control;
    control.value = this.filters[name];
    control.addEventListener("input", () =>
      this.#later(control.tagName === "SELECT" ? 0 : TYPING_MS),
    );
    return control;
  }

  /** A labelled control for the filter of a name. */
  control(name, label, control) {
    return labelled(label, this.field(name, control));
  }

  /** Changes the order or filters. */
  async filter(change) {
    clearTimeout(this.#waiting);
    Object.assign(this.filters, change);
    for (const [name, field] of Object.entries(this.#fields))
      if (field.value !== this.filters[name]) field.value = this.filters[name];
    this.row = 0;
    this.#keep();
    this.#version = null;
    await this.#look();
  }

  clear() {
    return this.filter(Object.fromEntries(Object.keys(this.#fields).map((name) => [name, ""])));
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
    this.#waiting = setTimeout(
      () =>
        this.filter(
          Object.fromEntries(
            Object.entries(this.#fields).map(([name, field]) => [name, field.value]),
          ),
        ),
      wait,
    );
  }

  #moved(row) {
    if (row === this.row) return;
    this.row = row;
    this.#keep();
  }

  #keep() {
    history.replaceState(null, "", this.#address());
    for (const link of this.element.querySelectorAll("a[data-more]"))
      link.href = this.#address(JSON.parse(link.dataset.more));
  }

  #ask(more) {
    return recorded(this.#what, { ...this.#fixed, ...this.filters, ...more });
  }

  #restart(page, told) {
    this.#grid.restart(page, told);
    // Another selection begins at its first row.
    if (this.element.isConnected && this.#grid.first > 0) this.#grid.scrollTo(0);
  }

  async #look() {
    const first = this.#version === null;
    const asked = query(this.filters);
    const offset = first ? Math.floor(this.row / PAGE) * PAGE : 0;
    try {
      const told = await this.#ask({ known: this.#version, offset, limit: PAGE });
      if (asked !== query(this.filters)) return; // another selection is on its way
      fill(this.problem);
      if (told.unchanged) return;
      this.#version = told.version;
      this.#told(told);
      if (first) this.#restart(offset / PAGE, told);
      else await this.#grid.again(told.found);
    } catch (error) {
      if (!this.element.isConnected) throw error;
      fill(this.problem, failure(error));
    }
  }
}
