// @ts-check
// The live view, updated every second: plots of learning and load, sessions, and episodes that ended.

import { card, el, failure, fill, labelled, select } from "../widgets/dom.js";
import {
  busiest,
  curves,
  LearningTable,
  mean,
  percent,
  recentSpan,
  recentTotals,
  share,
} from "../widgets/learning.js";
import { legend, plot } from "../widgets/plot.js";
import { about, ask, follow } from "../api/server.js";
import { EndedTable, PAGE, SessionTable } from "../widgets/session-table.js";
import { count, plural, reward, seconds } from "../widgets/words.js";

const SPAN = 300;
const STATES = [["", "any"], "creating", "ready", "failed"];
const QUIET = {
  sessions: 0,
  running: 0,
  calls: 0,
  failed: 0,
  refused: 0,
  p50: null,
  p95: null,
  p99: null,
};

export const ABSENT =
  "This server does not show its sessions: it is another implementation, its inspector is off, " +
  "or it needs another key.";

export async function show(main) {
  main.append(el("h1", "Live"));
  if (!about.live) {
    main.append(el("p.note", ABSENT));
    return null;
  }
  const names = await ask("GET", "list_environments", { log: false });
  const view = new LiveView(names);
  main.append(view.element);
  view.begin();
  return () => view.stop();
}

class LiveView {
  /** @type {import("../api/types.js").Point[]} */
  #points = [];
  /** @type {Record<string, import("../api/types.js").EpisodeTotals>} */
  #totals = {};
  #plots = el("div.plots");
  #learning = new LearningTable();
  #ended = new EndedTable();
  #sessions = new SessionTable((offset) => this.#want({ offset }));
  #wanted = { environment: "", state: "", offset: 0 };
  #stop = null;
  #clock = null;
  #ahead = 0; // seconds that the server's clock is ahead of ours

  constructor(names) {
    const choose = (key) => (value) => this.#want({ [key]: value, offset: 0 });
    const bar = el(
      "div.bar",
      labelled("Environment", select([["", "all"], ...names], "", choose("environment"))),
      labelled("State", select(STATES, "", choose("state"))),
      this.#sessions.pager,
    );
    this.element = el(
      "div",
      this.#plots,
      this.#learning.element,
      card("Sessions", "", bar, this.#sessions.element),
      this.#ended.element,
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

  #want(change) {
    Object.assign(this.#wanted, change);
    this.#stop?.();
    this.#ended.draw([]);
    const query = new URLSearchParams({
      ...this.#wanted,
      limit: String(PAGE),
      offset: String(this.#wanted.offset),
    });
    this.#stop = follow(
      `-/api/live?${query}`,
      (name, value) => this.#told(name, value),
      (error) => fill(this.#plots, failure(error)),
    );
  }

  #told(name, value) {
    if (name === "history") this.#points = value;
    if (name === "point") {
      this.#points.push(value);
      this.#points = this.#points.slice(-SPAN);
      this.#ahead = value.at - Date.now() / 1000;
    }
    if (name === "sessions") {
      this.#sessions.draw(value);
    }
    if (name === "episodes") {
      this.#totals = value.totals;
      this.#ended.draw(value.ended);
    }
    if (name !== "sessions") this.#plot();
    this.#tick();
  }

  #tick() {
    const now = Date.now() / 1000 + this.#ahead;
    this.#sessions.tick(now);
    this.#ended.tick(now);
  }

  #plot() {
    const { environment } = this.#wanted;
    const now = this.#points.at(-1) ?? { ...QUIET, at: Date.now() / 1000 };
    const last = recentTotals(this.#points, environment, now.at);
    this.#learning.draw(this.#points, this.#totals);
    const { shown, more } = environment ? { shown: [environment], more: 0 } : busiest(this.#points);
    const names = shown.length ? shown : ["episodes"];
    const rest = more ? `and ${plural(more, "more environment")}` : "";
    const line = (key, tone, name = key) => ({
      name,
      tone,
      points: this.#points.map((point) => [point.at, point[key]]),
    });
    fill(
      this.#plots,
      this.#tile(
        "Episodes per second",
        (last.ended / recentSpan(this.#points)).toFixed(1),
        rest || "in the last minute",
        curves(this.#points, names, (sum, seconds) => sum.ended / seconds),
        brief,
      ),
      this.#tile(
        "Mean reward",
        mean(last) === null ? "–" : reward(Number(mean(last).toPrecision(3))),
        "in the last minute",
        curves(this.#points, names, mean),
        brief,
      ),
      this.#tile(
        "Solved",
        percent(share(last)),
        "reward of 1 or more",
        curves(this.#points, names, share),
        percent,
        1,
      ),
      this.#tile(
        "Sessions",
        count(now.sessions),
        "",
        [line("sessions", "a"), line("running", "b", "calls running")],
        brief,
      ),
      this.#tile(
        "Calls per second",
        count(now.calls),
        `${count(now.failed)} failed · ${count(now.refused)} refused`,
        [line("calls", "a"), line("refused", "b"), line("failed", "d")],
        brief,
      ),
      this.#tile(
        "Latency",
        now.p50 === null ? "–" : seconds(now.p50),
        now.p50 === null ? "" : `p95 ${seconds(now.p95)} · p99 ${seconds(now.p99)}`,
        [line("p99", "c"), line("p95", "b"), line("p50", "a")],
        (y) => `${brief(y * 1000)} ms`,
      ),
    );
  }

  #tile(title, value, sub, series, format, most = 0) {
    const end = this.#points.at(-1)?.at ?? Date.now() / 1000;
    const xFormat = (at) => (at === end ? "now" : "5 min ago");
    const drawn = plot({
      label: `${title} over the last five minutes`,
      series,
      xs: [end - SPAN, end],
      gap: 3,
      height: 110,
      width: 330,
      format,
      xFormat,
      most,
    });
    return el(
      "figure.tile.card",
      el("figcaption", el("span.title", title), el("b", value), el("span.muted", sub)),
      drawn,
      legend(series),
    );
  }
}

const brief = (y) =>
  y >= 1000 ? `${Number((y / 1000).toPrecision(3))}k` : String(Number(y.toPrecision(3)));
