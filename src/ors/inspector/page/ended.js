// The table of episodes that ended last.

import { fill, h, reachable } from "./dom.js";
import { outcomeBadge } from "./recorded.js";
import { taskLine } from "./sessions.js";
import { age, count, reward, seconds } from "./words.js";

const COLUMNS = [["Session", ""], ["Environment", ""], ["Task", "wide"], ["Outcome", ""], ["Calls", "num wide"], ["Took", "num wide"], ["Reward", "num"], ["Ended", "num"]];

export class EndedTable {
  #rows = h("tbody");

  constructor() {
    const head = h("tr", null, COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)));
    const table = reachable(h("div", { class: "scroll" }, h("table", { class: "sessions ended" }, h("thead", null, head), this.#rows)));
    this.element = h("section", { class: "card", "aria-label": "Ended episodes" }, h("h2", null, "Ended episodes"), table);
    this.draw([]);
  }

  draw(episodes) {
    const old = new Map([...this.#rows.children].map((row) => [row.dataset.ended, row]));
    const rows = episodes.map((one) => old.get(`${one.sid} ${one.ended}`) ?? rowOf(one));
    fill(this.#rows, rows.length ? rows : h("tr", null, h("td", { colspan: COLUMNS.length, class: "muted empty" }, "Episodes stay here for a while after they have ended.")));
  }

  /** Updates how long ago they ended. */
  tick(now) {
    for (const cell of this.#rows.querySelectorAll("[data-since]")) cell.textContent = `${age(now - Number(cell.dataset.since))} ago`;
  }
}

function rowOf(one) {
  return h(
    "tr",
    { "data-ended": `${one.sid} ${one.ended}` },
    h("td", null, h("a", { href: `#/session/${encodeURIComponent(one.sid)}`, class: "sid", title: one.sid }, `…${one.sid.slice(-6)}`)),
    h("td", null, one.environment),
    h("td", { class: "spec wide" }, taskLine(one.task)),
    h("td", null, outcomeBadge(one.outcome, "", one.reward)),
    h("td", { class: "num wide" }, count(one.calls)),
    h("td", { class: "num wide" }, seconds(one.seconds)),
    h("td", { class: "num" }, reward(one.reward)),
    h("td", { class: "num", "data-since": one.ended }),
  );
}
