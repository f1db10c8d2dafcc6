// @ts-check
// The table of episodes that ended last.

import { fill, h, parts, reachable } from "./dom.js";
import { outcomeBadge } from "./recorded.js";
import { sessionLink, taskLine } from "./session-table.js";
import { cellsOf, emptyRow, headRow } from "./table.js";
import { age, count, reward, seconds } from "./words.js";

/** @type {import("./table.js").Column<import("../api/types.js").EndedEpisode>[]} */
const COLUMNS = [
  { title: "Session", cell: ({ sid }) => sessionLink(sid) },
  { title: "Environment", cell: ({ environment }) => environment },
  { title: "Task", class: "spec wide", cell: ({ task }) => taskLine(task) },
  { title: "Outcome", cell: (one) => outcomeBadge(one.outcome, "", one.reward) },
  { title: "Calls", class: "num wide", cell: ({ calls }) => count(calls) },
  { title: "Took", class: "num wide", cell: (one) => seconds(one.seconds) },
  { title: "Reward", class: "num", cell: (one) => [reward(one.reward), parts(one.components)] },
  { title: "Ended", class: "num", cell: ({ ended }) => h("span", { "data-since": ended }) },
];

export class EndedTable {
  #rows = h("tbody");

  constructor() {
    const table = reachable(
      h(
        "div",
        { class: "scroll" },
        h("table", { class: "sessions ended" }, h("thead", null, headRow(COLUMNS)), this.#rows),
      ),
    );
    this.element = h(
      "section",
      { class: "card", "aria-label": "Ended episodes" },
      h("h2", null, "Ended episodes"),
      table,
    );
    this.draw([]);
  }

  /** @param {import("../api/types.js").EndedEpisode[]} episodes */
  draw(episodes) {
    const old = new Map([...this.#rows.children].map((row) => [row.dataset.ended, row]));
    const rows = episodes.map((one) => old.get(`${one.sid} ${one.ended}`) ?? rowOf(one));
    fill(
      this.#rows,
      rows.length
        ? rows
        : emptyRow(COLUMNS, "Episodes stay here for a while after they have ended."),
    );
  }

  /** Updates how long ago they ended. */
  tick(now) {
    for (const cell of this.#rows.querySelectorAll("[data-since]"))
      cell.textContent = `${age(now - Number(cell.dataset.since))} ago`;
  }
}

const rowOf = (one) => h("tr", { "data-ended": `${one.sid} ${one.ended}` }, cellsOf(COLUMNS, one));
