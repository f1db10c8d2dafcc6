// @ts-check
// Tables whose columns are one list: a title, and the cell of a row below it.

import { h } from "./dom.js";

/**
 * A column of a table of rows. `class` is that of its head and of its cells. A table that can be
 * sorted asks the server for the `order` of that name, or sorts by `key`.
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {boolean} [untitled] Only screen readers are told the title.
 * @property {string} [class]
 * @property {(row: Row) => any} cell
 * @property {string} [order]
 * @property {(row: Row) => any} [key]
 */

/** @param {Column<any>[]} columns */
export const headRow = (columns) =>
  h(
    "tr",
    null,
    columns.map(({ title, untitled, class: kind }) =>
      h(
        "th",
        { scope: "col", class: kind },
        untitled ? h("span", { class: "offscreen" }, title) : title,
      ),
    ),
  );

/**
 * @template Row
 * @param {Column<Row>[]} columns
 * @param {Row} row
 */
export const cellsOf = (columns, row) =>
  columns.map(({ class: kind, cell }) => h("td", { class: kind }, cell(row)));

/**
 * A row that says why there are no others.
 * @param {Column<any>[]} columns
 */
export const emptyRow = (columns, ...children) =>
  h("tr", null, h("td", { colspan: columns.length, class: "muted empty" }, children));
