// @ts-check
// Tables whose columns are one list: a title, and the cell of a row below it.

import { el, fill, h, reachable } from "./dom.js";
import { age } from "./words.js";

/**
 * A column of a table of rows. `class` is that of its head and of its cells. A table that can be
 * sorted asks the server for the `order` of that name, or sorts by `key`.
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {boolean} [untitled] Only screen readers are told the title.
 * @property {string} [class]
 * @property {(row: Row) => any} cell
 * @property {boolean} [once] Whether a row that is drawn again keeps this cell.
 * @property {string} [order]
 * @property {(row: Row) => any} [key]
 */

/** @param {Column<any>} column */
const headCell = ({ title, untitled, class: kind }) =>
  h("th", { scope: "col", class: kind }, untitled ? el("span.offscreen", title) : title);

/** @param {Column<any>[]} columns */
export const headRow = (columns) => el("tr", columns.map(headCell));

/**
 * A head that sorts by the columns with an `order`: numbers fall at the first click, words rise.
 * @param {Column<any>[]} columns
 * @param {string} sort an order, with "-" before it if the largest is first
 * @param {(sort: string) => any} onSort
 */
export function sortedHead(columns, sort, onSort) {
  const head = h("thead");
  const turn = (next) => {
    draw(next);
    head.querySelector(`[data-order="${next.replace("-", "")}"]`).focus();
    onSort(next);
  };
  const draw = (now) =>
    fill(
      head,
      h(
        "tr",
        { "aria-rowindex": 1 },
        columns.map((column) => (column.order ? sortCell(column, now, turn) : headCell(column))),
      ),
    );
  draw(sort);
  return head;
}

/** @type {(column: Column<any>, sort: string, turn: (sort: string) => any) => Element} */
function sortCell({ title, class: kind, order }, sort, turn) {
  const down = sort === `-${order}`;
  const sorted = down || sort === order;
  const falls = sorted ? !down : kind?.includes("num");
  const mark = h("span", { "aria-hidden": "true" }, sorted ? (down ? " ↓" : " ↑") : "");
  const press = () => turn(falls ? `-${order}` : order);
  return h(
    "th",
    { scope: "col", class: kind, "aria-sort": sorted ? (down ? "descending" : "ascending") : null },
    h(
      "button",
      { type: "button", class: "order", "data-order": order, on: { click: press } },
      title,
      mark,
    ),
  );
}

/**
 * @template Row
 * @param {Column<Row>[]} columns
 * @param {Row} row
 * @param {ArrayLike<any>} [old] the cells that the row had before
 */
export const cellsOf = (columns, row, old = []) =>
  columns.map(({ class: kind, cell, once }, n) =>
    once && old[n] ? old[n] : h("td", { class: kind }, cell(row)),
  );

/**
 * A row that says why there are no others.
 * @param {Column<any>[]} columns
 */
export const emptyRow = (columns, ...children) =>
  el("tr", h("td", { colspan: columns.length, class: "muted empty" }, children));

/** A table that scrolls sideways where there is no room for it. */
export const tableOf = (kind, head, rows) =>
  reachable(el("div.scroll", h("table", { class: kind }, head, rows)));

/** Draws the rows that `make` returns; a row keeps the focus if its attribute `mark` is the same. */
export function redraw(body, mark, make) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.closest("tr").getAttribute(mark);
  const rows = make();
  const old = body.children;
  if (rows.length !== old.length || rows.some((row, n) => row !== old[n])) fill(body, rows);
  if (focused !== null && focused !== document.activeElement)
    body
      .querySelector(`tr[${mark}="${CSS.escape(key)}"] ${focused.tagName}`)
      ?.focus({ preventScroll: true });
}

/** A table that is drawn again and again: rows that have not changed stay. */
export class Table {
  #rows = h("tbody");
  #given;

  /**
   * Rows are told apart by `key`, which is their attribute `mark`; `empty` says why there are none.
   * @param {object} given
   * @param {string} given.kind
   * @param {Column<any>[]} given.columns
   * @param {string} given.mark
   * @param {(row: any) => string} given.key
   * @param {any} given.empty
   * @param {HTMLElement} [given.head]
   */
  constructor(given) {
    this.#given = given;
    const head = given.head ?? el("thead", headRow(given.columns));
    this.element = tableOf(given.kind, head, this.#rows);
    this.draw([]);
  }

  draw(values) {
    const { mark, columns, empty } = this.#given;
    redraw(this.#rows, mark, () => {
      const old = new Map([...this.#rows.children].map((row) => [row.getAttribute(mark), row]));
      const rows = values.map((value) => this.#row(value, old));
      return rows.length ? rows : [emptyRow(columns, empty)];
    });
  }

  #row(value, old) {
    const { mark, columns, key } = this.#given;
    const row = old.get(key(value)) ?? h("tr", { [mark]: key(value) });
    const told = JSON.stringify(value);
    if (row.told !== told) row.replaceChildren(...cellsOf(columns, value, row.cells));
    row.told = told;
    return row;
  }

  /** Updates the ages in cells with `data-since`. */
  tick(now) {
    for (const cell of this.#rows.querySelectorAll("[data-since]"))
      cell.textContent = age(now - Number(cell.dataset.since));
  }
}
