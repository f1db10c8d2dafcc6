// The view of live sessions, updated every second, with plots of the server's load.

import { button, endButton, failure, fill, h, labelled, select } from "./dom.js";
import { heldNote } from "./held.js";
import { short } from "./json.js";
import { plot } from "./plot.js";
import { about, ask, follow } from "./server.js";
import { age, clock, count, reward, seconds } from "./words.js";

const PAGE = 50;
const SPAN = 300;
const LEAST_SPAN = 60;
const STATES = [["", "any"], "creating", "ready", "failed"];

export const ABSENT = "This server does not show its sessions: it is another implementation, its inspector is off, or it needs another key.";

export async function show(main) {
  main.append(h("h1", null, "Live sessions"));
  if (!about.live) {
    main.append(h("p", { class: "note" }, ABSENT));
    return null;
  }
  const names = await ask("GET", "list_environments", { log: false });
  const view = new LiveView(names);
  main.append(view.element);
  view.begin();
  return () => view.stop();
}

class LiveView {
  #points = [];
  #page = { total: 0, offset: 0, sessions: [] };
  #rows = h("tbody");
  #plots = h("div", { class: "plots" });
  #held = h("div");
  #where = h("span", { class: "where" });
  #wanted = { environment: "", state: "", offset: 0 };
  #stop = null;
  #clock = null;
  #ahead = 0; // seconds that the server's clock is ahead of ours

  constructor(names) {
    const heads = ["Session", "Environment", "Task", "State", "Age", "Idle", "Calls", "Reward", ""];
    const numbers = heads.slice(4, 8);
    const choose = (key) => (value) => this.#want({ [key]: value, offset: 0 });
    this.element = h(
      "div",
      null,
      this.#plots,
      this.#held,
      h(
        "section",
        { class: "card", "aria-label": "Sessions" },
        h(
          "div",
          { class: "bar" },
          labelled("Environment", select([["", "all"], ...names], "", choose("environment"))),
          labelled("State", select(STATES, "", choose("state"))),
          h("div", { class: "pager" }, button("‹", () => this.#want({ offset: Math.max(0, this.#wanted.offset - PAGE) }), { class: "small", "aria-label": "Newer sessions" }), this.#where, button("›", () => this.#more(), { class: "small", "aria-label": "Older sessions" })),
        ),
        h("div", { class: "scroll" }, h("table", { class: "sessions" }, h("thead", null, h("tr", null, heads.map((title) => h("th", { scope: "col", class: numbers.includes(title) ? "num" : null }, title)))), this.#rows)),
      ),
    );
  }

  begin() {
    this.#want({});
    this.#clock = setInterval(() => this.#tick(), 1000);
  }

  stop() {
    this.#stop?.();
    clearInterval(this.#clock);
  }

  #more() {
    if (this.#wanted.offset + PAGE < this.#page.total) this.#want({ offset: this.#wanted.offset + PAGE });
  }

  #want(change) {
    Object.assign(this.#wanted, change);
    this.#stop?.();
    const query = new URLSearchParams({ ...this.#wanted, limit: PAGE });
    this.#stop = follow(`-/api/live?${query}`, (name, value) => this.#told(name, value), (error) => fill(this.#plots, failure(error)));
  }

  #told(name, value) {
    if (name === "history") this.#points = value;
    if (name === "point") {
      this.#points.push(value);
      this.#points = this.#points.slice(-SPAN);
      this.#ahead = value.at - Date.now() / 1000;
    }
    if (name === "sessions") {
      this.#page = value;
      this.#draw();
    }
    if (name !== "sessions") this.#plot();
  }

  #draw() {
    const { total, offset, sessions } = this.#page;
    fill(this.#held, heldNote(sessions));
    this.#where.textContent = total > PAGE ? `${count(offset + 1)}–${count(offset + sessions.length)} of ${count(total)}` : `${count(total)} in total`;
    // Unchanged rows are reused, so that a button keeps the pointer and the focus.
    const old = new Map([...this.#rows.children].map((row) => [row.dataset.sid, row]));
    const rows = sessions.map((session) => {
      const row = old.get(session.sid);
      const told = JSON.stringify(session);
      if (row?.told === told) return row;
      if (row) return redraw(row, session, told);
      return redraw(h("tr", { "data-sid": session.sid }), session, told);
    });
    if (rows.length === 0) rows.push(h("tr", null, h("td", { colspan: 9, class: "muted empty" }, "No sessions. Open one in ", h("a", { href: "#/play" }, "Play"), ", or from a program.")));
    const same = rows.length === this.#rows.children.length && rows.every((row, n) => row === this.#rows.children[n]);
    if (!same) fill(this.#rows, rows);
    this.#tick();
  }

  #tick() {
    const now = Date.now() / 1000 + this.#ahead;
    for (const cell of this.#rows.querySelectorAll("[data-since]")) cell.textContent = age(now - Number(cell.dataset.since));
  }

  #plot() {
    const now = this.#points.at(-1) ?? { sessions: this.#page.total, running: 0, calls: 0, failed: 0, refused: 0, at: Date.now() / 1000, p50: null };
    const since = this.#points[0]?.at ?? now.at;
    const span = [now.at - Math.max(LEAST_SPAN, Math.min(SPAN, now.at - since)), now.at];
    const points = (key, scale = 1) => this.#points.map((point) => [point.at, point[key] === null ? null : point[key] * scale]);
    const tile = (title, value, sub, series, format) =>
      h("figure", { class: "tile card" }, h("figcaption", null, h("span", { class: "title" }, title), h("b", null, value), h("span", { class: "muted" }, sub)), plot({ label: `${title} over the last five minutes`, series, xs: span, gap: 3, height: 110, width: 330, format, xFormat: clock }));
    const short3 = (y) => (y >= 1000 ? `${Number((y / 1000).toPrecision(3))}k` : String(Number(y.toPrecision(3))));
    fill(
      this.#plots,
      tile("Sessions", count(now.sessions), `${count(now.running)} calls running`, [{ points: points("sessions"), tone: "a" }], short3),
      tile("Calls per second", count(now.calls), "", [{ points: points("calls"), tone: "a" }], short3),
      tile("Latency", now.p50 === null ? "–" : seconds(now.p50), now.p50 === null ? "p50 · p95 · p99" : `p95 ${seconds(now.p95)} · p99 ${seconds(now.p99)}`, [{ points: points("p99", 1000), tone: "c" }, { points: points("p95", 1000), tone: "b" }, { points: points("p50", 1000), tone: "a" }], (y) => `${short3(y)} ms`),
      tile("Errors per second", count(now.failed + now.refused), `${count(now.failed)} failed · ${count(now.refused)} refused`, [{ points: points("refused"), tone: "b" }, { points: points("failed"), tone: "d" }], short3),
    );
  }
}

function redraw(row, session, told) {
  const link = `#/session/${encodeURIComponent(session.sid)}`;
  row.told = told;
  const since = (at) => h("td", { class: "num", "data-since": at });
  const state = session.finished && session.state === "ready" ? "finished" : session.state;
  const cells = [
    h("td", null, h("a", { href: link, class: "sid", title: session.sid }, `…${session.sid.slice(-10)}`)),
    h("td", null, session.environment),
    h("td", { class: "spec" }, short(Object.entries(session.task).map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(" · "), 90)),
    h("td", null, h("span", { class: `state ${state}`, title: session.failure || null }, state)),
    since(session.created),
    since(session.seen),
    h("td", { class: "num" }, count(session.calls), session.running ? h("span", { class: "running-mark", title: "running" }, ` +${session.running}`) : null),
    h("td", { class: "num" }, reward(session.reward)),
  ];
  // The last cell is reused: its button may be waiting for confirmation.
  const last = row.lastElementChild ?? h("td", null, endButton("End", () => endSession(session.sid)));
  row.replaceChildren(...cells, last);
  return row;
}

/** Ends a session of any client. */
export const endSession = (sid) => ask("DELETE", `-/sessions/${encodeURIComponent(sid)}`);
