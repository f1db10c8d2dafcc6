// @ts-check
// The table of live sessions, a page of the server's list.

import { button, endButton, fill, h, parts, reachable } from "./dom.js";
import { short } from "../api/json.js";
import { ask } from "../api/server.js";
import { cellsOf, emptyRow, headRow } from "./table.js";
import { age, count, reward } from "./words.js";

export const PAGE = 50;

/** @type {import("./table.js").Column<import("../api/types.js").SessionRow>[]} */
const COLUMNS = [
  { title: "Session", cell: ({ sid }) => sessionLink(sid) },
  { title: "Environment", cell: ({ environment }) => environment },
  { title: "Task", class: "spec wide", cell: ({ task }) => taskLine(task) },
  { title: "State", cell: stateBadge },
  { title: "Age", class: "num wide", cell: ({ created }) => h("span", { "data-since": created }) },
  { title: "Idle", class: "num wide", cell: ({ seen }) => h("span", { "data-since": seen }) },
  {
    title: "Calls",
    class: "num wide",
    cell: ({ calls, running }) => [count(calls), plus(running)],
  },
  {
    title: "Reward",
    class: "num",
    cell: (session) => [reward(session.reward), parts(session.components)],
  },
  // Made once for each row: its button may be waiting for confirmation.
  { title: "Actions", untitled: true, class: "act", cell: () => null },
];

/** Ends a session of any client. */
export const endSession = (sid) => ask("DELETE", `-/sessions/${encodeURIComponent(sid)}`);

/**
 * A shortened task in one line.
 * @param {Record<string, any>} task
 */
export const taskLine = (task) =>
  short(
    Object.entries(task)
      .map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`)
      .join(" · "),
    90,
  );

/** The state of a session in one word. */
export const stateOf = ({ state, finished }) =>
  finished && state === "ready" ? "finished" : state;

export class SessionTable {
  #rows = h("tbody");
  #where = h("span", { class: "where" });
  #page = { total: 0, offset: 0, sessions: [] };

  /** `turn(offset)` asks for the page that begins there. */
  constructor(turn) {
    const newer = () => turn(Math.max(0, this.#page.offset - PAGE));
    const older = () =>
      this.#page.offset + PAGE < this.#page.total && turn(this.#page.offset + PAGE);
    this.pager = h(
      "div",
      { class: "pager" },
      button("‹", newer, { class: "small", "aria-label": "Newer sessions" }),
      this.#where,
      button("›", older, { class: "small", "aria-label": "Older sessions" }),
    );
    this.element = reachable(
      h(
        "div",
        { class: "scroll" },
        h("table", { class: "sessions" }, h("thead", null, headRow(COLUMNS)), this.#rows),
      ),
    );
  }

  /** @param {import("../api/types.js").SessionPage} page */
  draw(page) {
    this.#page = page;
    const { total, offset, sessions } = page;
    this.#where.textContent =
      total > PAGE
        ? `${count(offset + 1)}–${count(offset + sessions.length)} of ${count(total)}`
        : `${count(total)} in total`;
    // Unchanged rows are reused, so that a button keeps the pointer and the focus.
    const old = new Map([...this.#rows.children].map((row) => [row.dataset.sid, row]));
    const rows = sessions.map((session) => {
      const row = old.get(session.sid);
      const told = JSON.stringify(session);
      if (row?.told === told) return row;
      return redraw(row ?? h("tr", { "data-sid": session.sid }), session, told);
    });
    if (rows.length === 0)
      rows.push(
        emptyRow(
          COLUMNS,
          "No sessions. Open one in ",
          h("a", { href: "#/play" }, "Play"),
          ", or from a program.",
        ),
      );
    const same =
      rows.length === this.#rows.children.length &&
      rows.every((row, n) => row === this.#rows.children[n]);
    if (!same) fill(this.#rows, rows);
  }

  /** Updates ages. */
  tick(now) {
    for (const cell of this.#rows.querySelectorAll("[data-since]"))
      cell.textContent = age(now - Number(cell.dataset.since));
  }
}

function redraw(row, session, told) {
  row.told = told;
  const act = row.lastElementChild ?? h("td", { class: "act" }, endAction(session.sid));
  row.replaceChildren(...cellsOf(COLUMNS, session).slice(0, -1), act);
  return row;
}

const endAction = (sid) => endButton("End", () => endSession(sid));

/** A link to the view of a session, named by the end of its id. */
export const sessionLink = (sid) =>
  h(
    "a",
    { href: `#/session/${encodeURIComponent(sid)}`, class: "sid", title: sid },
    `…${sid.slice(-6)}`,
  );

function stateBadge(session) {
  const state = stateOf(session);
  return h("span", { class: `state ${state}`, title: session.failure || null }, state);
}

const plus = (running) =>
  running ? h("span", { class: "running-mark", title: "running" }, ` +${running}`) : null;
