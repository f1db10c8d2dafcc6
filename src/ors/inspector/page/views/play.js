// @ts-check
// The view to play an episode: open it, call tools, see their results.

import { environments, rewardRange, size, task as fetchTask } from "../api/catalogue.js";
import {
  actions,
  button,
  card,
  copyButton,
  el,
  endButton,
  fact,
  facts,
  failure,
  fill,
  h,
  labelled,
  loading,
  parts,
  reachable,
} from "../widgets/dom.js";
import { Episode } from "../api/episode.js";
import { asCurl, asJson, asPython } from "../api/exports.js";
import { Form, SecretRows } from "../widgets/form.js";
import { isObject, parse, pretty } from "../api/json.js";
import { promptBlocks, tree } from "../widgets/show.js";
import { about } from "../api/server.js";
import { chosenSplit, splitControls } from "../widgets/split-choice.js";
import { rewardPlot, StepList } from "../widgets/steps.js";
import { reward } from "../widgets/words.js";
import { address } from "../widgets/recorded.js";

let current = null; // stays open while other views are shown

/** #/play/ENVIRONMENT/SPLIT/INDEX?session=SID, once a session is open; `?open` opens one at once. */
export async function show(main, [environment, split, index], asked) {
  const sid = asked.get("session");
  if (sid && sid !== current?.sid) current = (await Episode.restored(sid)) ?? current;
  if (
    current &&
    (sid ? sid === current.sid : !environment || sameTask(current, environment, split, index))
  ) {
    history.replaceState(null, "", addressOf(current.environment, current.from, current.sid));
    return table(main, current);
  }
  main.append(el("h1", "Play"), loading("environments"));
  const all = await environments();
  main.lastChild.remove();
  const { chosen, inSplit } = chosenSplit(all, environment, split);
  const from = { split: inSplit, index: Number(index ?? 0) };
  const form = setup(all, chosen, from);
  if (sid) main.append(unknownNote(sid));
  if (current?.state === "open") main.append(openNote(current));
  main.append(form);
  main.querySelector("button.primary").focus({ preventScroll: true });
  if (!asked.has("open")) return;
  history.replaceState(null, "", addressOf(chosen.name, from));
  // An open episode is not ended, and a required secret not left out, without a word.
  if (current?.state !== "open" && !chosen.required_secrets.length) form.requestSubmit();
}

const openNote = ({ environment }) =>
  el(
    "p.note",
    `An episode of ${environment} is open: `,
    h("a", { href: "#/play" }, "go back to it"),
    ". Opening another episode ends it.",
  );

const unknownNote = (sid) =>
  el(
    "p.note",
    "This tab did not open the session ",
    el("code.sid", sid),
    ". ",
    about.live ? h("a", { href: address(["session", sid]) }, "Watch it") : "Open another one.",
  );

const sameTask = (episode, environment, split, index) =>
  episode.state !== "ended" &&
  episode.state !== "lost" &&
  episode.environment === environment &&
  episode.from?.split === split &&
  String(episode.from?.index) === String(index);

// ── Before it is open ────────────────────────────────────────────────────────────────────────────

function setup(all, chosen, { split, index }) {
  const from = () => ({ split, index: Number(at.value) || 0 });
  const at = h("input.page-number", {
    inputmode: "numeric",
    value: String(index),
    on: { change: () => (location.hash = addressOf(chosen.name, from())) },
  });
  const edited = h("textarea.code", { rows: 6, spellcheck: "false", "aria-label": "Task as JSON" });
  const editor = el(
    "details.more",
    el("summary", "Edit the task"),
    el("p.hint", "The session gets this task instead of the one at that index."),
    edited,
  );
  editor.addEventListener("toggle", async () => {
    if (editor.open && edited.value === "")
      edited.value = await fetchTask(chosen.name, split, index).then(pretty, () => "{}");
  });
  const preview = el("div.task-preview", loading("the task"));
  fetchTask(chosen.name, split, index).then(
    (spec) => fill(preview, tree(spec)),
    (error) => fill(preview, failure(error)),
  );
  const required = chosen.required_secrets;
  const secrets = new SecretRows(required);
  const said = h("div");
  const open = h("button.primary", { type: "submit" }, "Open the session");
  const onSubmit = async (event) => {
    event.preventDefault();
    open.disabled = true;
    await begin(chosen.name, from(), editor.open ? edited.value : null, secrets.read(), said);
    open.disabled = false;
  };
  return h(
    "form.card",
    { "aria-label": "Task", on: { submit: onSubmit } },
    el("div.bar", splitControls("play", all, chosen, split), labelled("Index", at)),
    preview,
    editor,
    h(
      "details.more",
      { open: required.length > 0 },
      el("summary", "Secrets"),
      required.length > 0 ? el("p.hint", `Required: ${required.join(", ")}.`) : null,
      el("p.hint", "Secrets are sent with the session and never shown."),
      secrets.element,
    ),
    actions(open),
    said,
  );
}

async function begin(environment, from, edited, secrets, said) {
  fill(said);
  let task = from;
  if (edited !== null) {
    try {
      task = { task_spec: parse(edited) };
      if (!isObject(task.task_spec)) throw new Error("it must be a JSON object");
    } catch (error) {
      fill(said, failure(new Error(`The task is not valid: ${error.message}`)));
      return;
    }
  }
  if (current?.state === "open") await current.end();
  const episode = new Episode(environment, task);
  episode.from = edited === null ? from : null;
  fill(said, loading("the session while its environment is set up"));
  try {
    await episode.open(secrets);
  } catch (error) {
    fill(said, failure(error));
    return;
  }
  current = episode;
  goTo(addressOf(environment, episode.from, episode.sid));
}

const addressOf = (environment, from, sid = null) =>
  address(["play", environment, ...(from ? [from.split, from.index] : [])], { session: sid });

/** Goes to an address, even if it does not change. */
function goTo(hash) {
  if (location.hash === hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

// ── While it is open ─────────────────────────────────────────────────────────────────────────────

function table(main, episode) {
  const trajectory = new StepList("Trajectory");
  const summary = el("div.summary");
  const tools = new ToolBox(episode);
  const over = new Over(episode);
  const put = (step) => trajectory.put(step, () => tools.use(step.tool, step.input));
  episode.steps.forEach(put);
  let rewards = null;
  let range = null;
  const onState = () => {
    tools.update();
    over.update();
    // A plot of hundreds of steps is redrawn only when it has changed.
    if (!episode.running || rewards === null) rewards = rewardPlot(episode.steps, range);
    fill(summary, summed(episode, rewards));
  };
  const listeners = {
    state: onState,
    step: ({ detail: step }) => {
      const item = put(step);
      onState();
      item.scrollIntoView({ block: "nearest" });
    },
    ping: ({ detail: step }) => trajectory.tick(step),
  };
  const clock = setInterval(() => episode.running && trajectory.tick(episode.running), 100);
  rewardRange(episode.environment).then((declared) => {
    range = declared;
    if (range) onState();
  });
  const events = Object.entries(listeners);
  events.forEach(([name, listener]) => episode.addEventListener(name, listener));
  onState();
  const side = el(
    "div.side",
    over.element,
    tools.element,
    h("section.card", { "aria-label": "Episode" }, summary),
  );
  main.append(
    el("h1", "Play ", el("span.muted", named(episode))),
    el(
      "div.columns.play",
      el("div", card("Prompt", "prompt", promptBlocks(episode.prompt)), trajectory.element),
      reachable(side),
    ),
  );
  if (!episode.finished) tools.focus();
  window.scrollTo(0, 0);
  return () => {
    clearInterval(clock);
    events.forEach(([name, listener]) => episode.removeEventListener(name, listener));
  };
}

const named = (episode) =>
  episode.from
    ? `${episode.environment} · ${episode.from.split} ${episode.from.index}`
    : `${episode.environment} · edited task`;

function summed(episode, rewards) {
  const state = episode.finished ? "finished" : episode.state;
  const words = state === "lost" ? `lost: ${episode.why}` : state;
  const ending = episode.running ? "Abort: delete the session" : "End the session";
  return [
    el("h2", "Episode"),
    facts(
      fact("State", h("span", { class: `state ${state}` }, words)),
      fact("Reward", el("b.total", reward(episode.total)), parts(episode.components)),
      fact("Calls", String(episode.steps.length)),
      fact("Session", el("code.sid", episode.sid)),
    ),
    rewards,
    actions(
      copyButton("Copy JSON", () => asJson(episode)),
      copyButton("Copy Python", () => asPython(episode)),
      copyButton("Copy curl", () => asCurl(episode)),
    ),
    actions(episode.state === "open" ? endButton(ending, () => episode.end()) : null),
  ];
}

/** What to do after the end of an episode: the next task, or the same one again. */
class Over {
  #episode;
  #next; // the next task, if there is one
  element = h("section.card.over", { "aria-label": "What next", hidden: true });

  constructor(episode) {
    this.#episode = episode;
    const { from, environment } = episode;
    this.#next = from
      ? size(environment, from.split).then(
          (total) => (from.index + 1 < total ? { ...from, index: from.index + 1 } : null),
          () => null,
        )
      : Promise.resolve(null);
  }

  async update() {
    const { finished, state, why, from } = this.#episode;
    if (!this.element.hidden || !(finished || state === "ended" || state === "lost")) return;
    this.element.hidden = false;
    const next = await this.#next;
    const again = button("New episode", () => this.#leave(from), {
      class: next ? null : "primary",
    });
    const { total } = this.#episode;
    const words = finished
      ? `The episode is finished. Reward: ${total === null ? "none" : reward(total)}.`
      : state === "lost"
        ? `The session is lost: ${why}`
        : "The session has ended.";
    const on = next && button("Next task", () => this.#leave(next), { class: "primary" });
    fill(this.element, el("p", words), actions(on, again));
    this.element.querySelector(".primary").focus({ preventScroll: true });
  }

  async #leave(to) {
    if (this.#episode.state === "open") await this.#episode.end();
    current = null;
    goTo(addressOf(this.#episode.environment, to));
  }
}

/** The tools of an episode, and the form of the chosen one. */
class ToolBox {
  #episode;
  #form = null;
  #holder = h("div");
  #tabs = h("div.tabs", { role: "group", "aria-label": "Tools" });
  #call;
  #raw;

  constructor(episode) {
    this.#episode = episode;
    this.#call = h("button.primary", { type: "submit" }, "Call");
    this.#raw = button(
      "Raw JSON",
      () => {
        this.#form.toggleRaw();
        this.#raw.setAttribute("aria-pressed", String(this.#form.isRaw));
      },
      { class: "small", "aria-pressed": "false" },
    );
    const form = h(
      "form",
      { novalidate: true },
      this.#holder,
      actions(this.#call, el("span.hint.keys", "Ctrl+Enter"), this.#raw),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.#send();
      }
    });
    this.element = card("Call a tool", "tools", this.#tabs, form);
    this.use(episode.steps.at(-1)?.tool ?? episode.tools[0]?.name);
  }

  get #tool() {
    return this.#episode.tools.find((tool) => tool.name === this.name);
  }

  /** Chooses a tool, with an initial input. */
  use(name, input) {
    this.name = name;
    fill(
      this.#tabs,
      this.#episode.tools.map((tool) =>
        button(tool.name, () => this.use(tool.name), {
          class: "tab",
          "aria-pressed": String(tool.name === name),
        }),
      ),
    );
    if (!this.#tool) {
      fill(this.#holder, el("p.muted", "This task has no tools."));
      this.update();
      return;
    }
    this.#form = new Form(this.#tool.input_schema, input);
    this.#raw.setAttribute("aria-pressed", "false");
    const last = this.#tool.terminal
      ? el("p.hint", "Terminal tool: takes the agent's last message.")
      : null;
    fill(
      this.#holder,
      this.#tool.description ? el("p.described", this.#tool.description) : null,
      last,
      this.#form.element,
    );
    this.update();
    this.focus();
  }

  /** Enables or disables the form. */
  update() {
    const { state, running, finished } = this.#episode;
    this.#call.disabled = state !== "open" || Boolean(running) || !this.#tool;
    this.#call.textContent = running ? "Running…" : "Call";
    this.#call.classList.toggle("primary", !finished);
    this.element.hidden = state !== "open" && !running;
  }

  async #send() {
    if (this.#call.disabled) return;
    const input = this.#form.read();
    if (input !== null) await this.#episode.call(this.name, input);
    if (this.element.isConnected && !this.#episode.finished) this.focus();
  }

  /** Focuses the form of the next call. */
  focus() {
    if (this.#form?.isEmpty) this.#call.focus({ preventScroll: true });
    else this.#form?.focus();
  }
}
