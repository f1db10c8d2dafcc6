// @ts-check
// The tables of live sessions, a page of the server's list, and of the episodes that ended last.

import { button, card, el, endButton, h, parts } from "./dom.js";
import { short } from "../api/json.js";
import { ask } from "../api/server.js";
import { outcomeBadge } from "./recorded.js";
import { Table } from "./table.js";
import { count, reward, seconds } from "./words.js";

export const PAGE = 50;

/** @type {import("./table.js").Column<import("../api/types.js").SessionRow>[]} */
const OPEN = [
  { title: "Session", cell: ({ sid }) => sessionLink(sid) },
  { title: "Environment", cell: ({ environment }) => environment },
  { title: "Task", class: "spec wide", cell: ({ task }) => taskLine(task) },
  { title: "State", cell: stateBadge },
  { title: "Age", class: "num wide", cell: ({ created }) => h("span", { "data-since": created }) },
  { title: "Idle", class: "num wide", cell: ({ seen }) => h("span", { "data-since": seen }) },
  { title: "Calls", class: "num wide", cell: (one) => [count(one.calls), plus(one.running)] },
  { title: "Reward", class: "num", cell: (one) => [reward(one.reward), parts(one.components)] },
  // Kept, because its button may be waiting for confirmation.
  { title: "Actions", untitled: true, class: "act", cell: ({ sid }) => endAction(sid), once: true },
];

/** @type {import("./table.js").Column<import("../api/types.js").EndedEpisode>[]} */
const ENDED = [
  { title: "Session", cell: ({ sid }) => sessionLink(sid) },
  { title: "Environment", cell: ({ environment }) => environment },
  { title: "Task", class: "spec wide", cell: ({ task }) => taskLine(task) },
  { title: "Outcome", cell: (one) => outcomeBadge(one.outcome, "", one.reward) },
  { title: "Calls", class: "num wide", cell: ({ calls }) => count(calls) },
  { title: "Took", class: "num wide", cell: (one) => seconds(one.seconds) },
  { title: "Reward", class: "num", cell: (one) => [reward(one.reward), parts(one.components)] },
  { title: "Ended", class: "num", cell: (one) => [h("span", { "data-since": one.ended }), " ago"] },
];

/** Ends a session of any client. */
export const endSession = (sid) => ask("DELETE", `-/sessions/${encodeURIComponent(sid)}`);

const endAction = (sid) => endButton("End", () => endSession(sid));

/**
 * A shortened task in one line.
 * @param {Record<string, any>} task
 */
const taskLine = (task) =>
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
  #where = el("span.where");
  #page = { total: 0, offset: 0, sessions: [] };
  #table = new Table({
    kind: "sessions",
    columns: OPEN,
    mark: "data-sid",
    key: ({ sid }) => sid,
    empty: [
      "No sessions. Open one in ",
      h("a", { href: "#/play" }, "Play"),
      ", or from a program.",
    ],
  });
  element = this.#table.element;

  /** `turn(offset)` asks for the page that begins there. */
  constructor(turn) {
    const newer = () => turn(Math.max(0, this.#page.offset - PAGE));
    const older = () =>
      this.#page.offset + PAGE < this.#page.total && turn(this.#page.offset + PAGE);
    this.pager = el(
      "div.pager",
      button("‹", newer, { class: "small", "aria-label": "Newer sessions" }),
      this.#where,
      button("›", older, { class: "small", "aria-label": "Older sessions" }),
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
    this.#table.draw(sessions);
  }

  tick(now) {
    this.#table.tick(now);
  }
}

export class EndedTable extends Table {
  constructor() {
    super({
      kind: "sessions ended",
      columns: ENDED,
      mark: "data-ended",
      key: ({ sid, ended }) => `${sid} ${ended}`,
      empty: "Episodes stay here for a while after they have ended.",
    });
    this.element = card("Ended episodes", "", this.element);
  }
}

/** A link to the view of a session, named by the end of its id. */
const sessionLink = (sid) =>
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
  running ? h("span.running-mark", { title: "running" }, ` +${running}`) : null;
