// The table of live sessions, a page of the server's list.

import { button, endButton, fill, h, reachable } from "./dom.js";
import { short } from "./json.js";
import { ask } from "./server.js";
import { age, count, reward } from "./words.js";

export const PAGE = 50;
const COLUMNS = [["Session", ""], ["Environment", ""], ["Task", "wide"], ["State", ""], ["Age", "num wide"], ["Idle", "num wide"], ["Calls", "num wide"], ["Reward", "num"]];

/** Ends a session of any client. */
export const endSession = (sid) => ask("DELETE", `-/sessions/${encodeURIComponent(sid)}`);

/** A shortened task in one line. */
export const taskLine = (task) => short(Object.entries(task).map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(" · "), 90);

/** The state of a session in one word. */
export const stateOf = ({ state, finished }) => (finished && state === "ready" ? "finished" : state);

export class SessionTable {
  #rows = h("tbody");
  #where = h("span", { class: "where" });
  #page = { total: 0, offset: 0, sessions: [] };

  /** `turn(offset)` asks for the page that begins there. */
  constructor(turn) {
    const head = h("tr", null, COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)), h("th", { scope: "col" }, h("span", { class: "offscreen" }, "Actions")));
    const newer = () => turn(Math.max(0, this.#page.offset - PAGE));
    const older = () => this.#page.offset + PAGE < this.#page.total && turn(this.#page.offset + PAGE);
    this.pager = h("div", { class: "pager" }, button("‹", newer, { class: "small", "aria-label": "Newer sessions" }), this.#where, button("›", older, { class: "small", "aria-label": "Older sessions" }));
    this.element = reachable(h("div", { class: "scroll" }, h("table", { class: "sessions" }, h("thead", null, head), this.#rows)));
  }

  draw(page) {
    this.#page = page;
    const { total, offset, sessions } = page;
    this.#where.textContent = total > PAGE ? `${count(offset + 1)}–${count(offset + sessions.length)} of ${count(total)}` : `${count(total)} in total`;
    // Unchanged rows are reused, so that a button keeps the pointer and the focus.
    const old = new Map([...this.#rows.children].map((row) => [row.dataset.sid, row]));
    const rows = sessions.map((session) => {
      const row = old.get(session.sid);
      const told = JSON.stringify(session);
      if (row?.told === told) return row;
      return redraw(row ?? h("tr", { "data-sid": session.sid }), session, told);
    });
    if (rows.length === 0) rows.push(h("tr", null, h("td", { colspan: COLUMNS.length + 1, class: "muted empty" }, "No sessions. Open one in ", h("a", { href: "#/play" }, "Play"), ", or from a program.")));
    const same = rows.length === this.#rows.children.length && rows.every((row, n) => row === this.#rows.children[n]);
    if (!same) fill(this.#rows, rows);
  }

  /** Updates ages. */
  tick(now) {
    for (const cell of this.#rows.querySelectorAll("[data-since]")) cell.textContent = age(now - Number(cell.dataset.since));
  }
}

function redraw(row, session, told) {
  row.told = told;
  const since = (at) => h("td", { class: "num wide", "data-since": at });
  const state = stateOf(session);
  const cells = [
    h("td", null, h("a", { href: `#/session/${encodeURIComponent(session.sid)}`, class: "sid", title: session.sid }, `…${session.sid.slice(-6)}`)),
    h("td", null, session.environment),
    h("td", { class: "spec wide" }, taskLine(session.task)),
    h("td", null, h("span", { class: `state ${state}`, title: session.failure || null }, state)),
    since(session.created),
    since(session.seen),
    h("td", { class: "num wide" }, count(session.calls), session.running ? h("span", { class: "running-mark", title: "running" }, ` +${session.running}`) : null),
    h("td", { class: "num" }, reward(session.reward)),
  ];
  // The last cell is reused: its button may be waiting for confirmation.
  const last = row.lastElementChild ?? h("td", { class: "act" }, endButton("End", () => endSession(session.sid)));
  row.replaceChildren(...cells, last);
  return row;
}
