// @ts-check
// Read-only view of another client's session: its calls as they happen.

import {
  actions,
  card,
  el,
  endButton,
  fact,
  facts,
  failure,
  fill,
  h,
  parts,
  reachable,
} from "../widgets/dom.js";
import { decodeAll } from "../api/events.js";
import { rewardRange } from "../api/catalogue.js";
import { outcomeOfText } from "../api/episode.js";
import { ABSENT } from "./live.js";
import { outcomeBadge } from "../widgets/recorded.js";
import { SandboxPanel } from "../widgets/sandbox.js";
import { about, follow } from "../api/server.js";
import { endSession, stateOf } from "../widgets/session-table.js";
import { promptBlocks, tree } from "../widgets/show.js";
import { rewardPlot, StepList } from "../widgets/steps.js";
import { age, bytes, clock, plural, reward } from "../widgets/words.js";
import { beginForeign } from "../api/wire-log.js";

const MOST_SHOWN = 500;
const UNSEEN = "No prompt to show: it was not requested yet, or is too large.";
const ENDED = new Set(["deleted", "ended"]);

/** #/session/SID */
export async function show(main, [sid]) {
  main.append(el("h1", "Session ", el("code.sid", sid ?? "")));
  if (!about.live || !sid) {
    main.append(el("p.note", ABSENT));
    return null;
  }
  const view = new SessionView(sid, main);
  return view.begin();
}

class SessionView {
  #session = null;
  #range = null;
  #steps = [];
  #list = new StepList("Calls");
  #side = el("div.summary");
  #prompt = h("div");
  #task = h("div");
  #empty = el("p.muted.note", "No calls yet. They appear here as they happen.");

  constructor(sid, main) {
    this.sid = sid;
    this.sandbox = new SandboxPanel(sid);
    this.end = actions(endButton("End this session", () => endSession(sid)));
    const side = h("section.card.side", { "aria-label": "Session" }, this.#side, this.end);
    this.place = el(
      "div.columns.play",
      el("div", this.#prompt, this.#task, this.sandbox.node, this.#empty, this.#list.element),
      reachable(side),
    );
    main.append(this.place);
  }

  begin() {
    const stop = follow(
      `-/api/calls/${encodeURIComponent(this.sid)}`,
      (name, value) => (name === "over" ? stop() : this.#told(name, value)),
      (error) => this.#refused(error),
    );
    const timer = setInterval(() => this.#tick(), 200);
    return () => {
      stop();
      clearInterval(timer);
      this.sandbox.stop();
    };
  }

  #told(name, value) {
    if (name === "session") this.#opened(value);
    else if (name === "prompt" && value)
      fill(this.#prompt, card("Prompt", "prompt", promptBlocks(value)));
    else if (name === "before") value.forEach((call) => this.#begun(call, true));
    else if (name === "started") this.#begun(value, false);
    else if (name === "ended") this.#ended(value);
    else if (name === "missed")
      this.#list.element.append(
        el("li.note", `${plural(value, "event")} skipped: this page was too slow.`),
      );
    this.#draw();
  }

  #opened(session) {
    const first = this.#session === null;
    this.#session = session;
    if (!first) return;
    fill(this.#prompt, card("Prompt", "prompt", el("p.muted", UNSEEN)));
    if (session.task) fill(this.#task, card("Task", "", tree(session.task)));
    rewardRange(session.environment).then((declared) => {
      this.#range = declared;
      if (declared) this.#draw();
    });
  }

  /** The session is not there, or no longer: what was seen of it stays. */
  #refused(error) {
    const live = el("p", h("a.button", { href: "#/live" }, "All sessions"));
    if (this.#session) {
      this.#side.before(failure(error));
      this.#session = { ...this.#session, state: "deleted" };
      this.#draw();
    } else this.place.replaceWith(failure(error), live);
  }

  #begun(call, before) {
    if (this.#steps.some((step) => step.taskId === call.task_id)) return;
    const wire = beginForeign(
      this.#session.environment,
      this.sid,
      call.tool,
      call.input ?? undefined,
    );
    const step = {
      n: this.#steps.length + 1,
      tool: call.tool,
      input: call.input,
      taskId: call.task_id,
      status: "running",
      pings: 0,
      at: call.at ?? Date.now() / 1000 - call.seconds,
      began: performance.now() - (before ? call.seconds * 1000 : 0),
      exchanges: [wire],
    };
    this.#steps.push(step);
    if (call.bytes !== undefined) this.#finish(step, call);
    this.#put(step);
  }

  #ended(call) {
    const step = this.#steps.find((one) => one.taskId === call.task_id);
    if (!step) {
      this.#begun(call, true);
      return;
    }
    this.#finish(step, call);
    this.#put(step);
  }

  #finish(step, call) {
    const unseen = {
      status: "ok",
      output: {
        blocks: [
          { type: "text", text: `A result of ${bytes(call.bytes)}, too large to show here.` },
        ],
      },
    };
    Object.assign(step, call.stream === null ? unseen : outcomeOfText(call.stream), {
      seconds: call.seconds,
    });
    const wire = step.exchanges[0];
    if (call.stream !== null)
      for (const event of decodeAll(call.stream)) wire.part(`${event.raw}\n\n`, event.name);
    wire.seconds = call.seconds;
    wire.changed();
  }

  #put(step) {
    this.#list.put(step);
    const { element } = this.#list;
    if (element.childElementCount > MOST_SHOWN) element.firstElementChild.remove();
  }

  #draw() {
    const session = this.#session;
    this.#empty.hidden = this.#steps.length > 0;
    if (!session) return;
    if (ENDED.has(session.state))
      this.#empty.textContent = session.calls
        ? "The server no longer keeps the calls of this episode."
        : "The episode ended without a call.";
    const state = stateOf(session);
    this.sandbox.follow(session);
    const now = Date.now() / 1000;
    fill(
      this.#side,
      el("h2", "Session"),
      facts(
        fact("State", h("span", { class: `state ${state}` }, state)),
        session.failure ? fact("Why", session.failure) : null,
        fact("Environment", session.environment),
        session.outcome ? fact("Outcome", outcomeBadge(session.outcome, "", session.reward)) : null,
        fact("Reward", el("b.total", reward(session.reward)), parts(session.components)),
        fact("Calls", String(session.calls)),
        fact("Opened", `${clock(session.created)}, ${age(now - session.created)} ago`),
      ),
      rewardPlot(this.#steps, this.#range),
      el(
        "p.hint",
        ENDED.has(session.state)
          ? "This episode has ended. The server keeps the newest calls; older ones may be missing."
          : "Read-only: another client is playing this session.",
      ),
    );
    this.end.hidden = ENDED.has(session.state);
  }

  #tick() {
    for (const step of this.#steps) if (step.status === "running") this.#list.tick(step);
  }
}
