// @ts-check
// The view to play an episode: open it, call tools, see their results.

import { environments, rewardRange, size, task as fetchTask } from "../api/catalogue.js";
import {
  button,
  copyButton,
  endButton,
  fact,
  failure,
  fill,
  h,
  labelled,
  loading,
  parts,
  reachable,
  select,
} from "../widgets/dom.js";
import { Episode } from "../api/episode.js";
import { asCurl, asJson, asPython } from "../api/exports.js";
import { Form, SecretRows } from "../widgets/form.js";
import { isObject, parse, pretty } from "../api/json.js";
import { promptBlocks, tree } from "../widgets/show.js";
import { about } from "../api/server.js";
import { rewardPlot, stepItem, tickRunning } from "../widgets/steps.js";
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
  main.append(h("h1", null, "Play"), loading("environments"));
  const all = await environments();
  main.lastChild.remove();
  const chosen = all.find((one) => one.name === environment) ?? all[0];
  const inSplit = chosen.splits.find((one) => one.name === split)?.name ?? chosen.splits[0]?.name;
  const left =
    current && current.state === "open"
      ? h(
          "p",
          { class: "note" },
          "An episode of ",
          current.environment,
          " is open: ",
          h("a", { href: "#/play" }, "go back to it"),
          ". Opening another episode ends it.",
        )
      : null;
  const unknown = sid
    ? h(
        "p",
        { class: "note" },
        "This tab has not opened the session ",
        h("code", { class: "sid" }, sid),
        ". ",
        about.live
          ? h("a", { href: `#/session/${encodeURIComponent(sid)}` }, "Watch it")
          : "Open another one.",
      )
    : null;
  const form = setup(all, chosen, inSplit, Number(index ?? 0));
  main.append(unknown ?? "", left ?? "", form);
  main.querySelector("button.primary").focus({ preventScroll: true });
  if (!asked.has("open")) return;
  history.replaceState(
    null,
    "",
    addressOf(chosen.name, { split: inSplit, index: Number(index ?? 0) }),
  );
  // An open episode is not ended, and a required secret not left out, without a word.
  if (!left && !chosen.required_secrets?.length) form.requestSubmit();
}

const sameTask = (episode, environment, split, index) =>
  episode.state !== "ended" &&
  episode.state !== "lost" &&
  episode.environment === environment &&
  episode.from?.split === split &&
  String(episode.from?.index) === String(index);

// ── Before it is open ────────────────────────────────────────────────────────────────────────────

function setup(all, chosen, split, index) {
  const go = (env, part, n) =>
    (location.hash = `#/play/${[env, part, n]
      .filter((one) => one !== undefined)
      .map(encodeURIComponent)
      .join("/")}`);
  const at = h("input", {
    class: "page-number",
    inputmode: "numeric",
    value: String(index),
    on: { change: () => go(chosen.name, split, Number(at.value) || 0) },
  });
  const edited = h("textarea", {
    class: "code",
    rows: 6,
    spellcheck: "false",
    "aria-label": "Task as JSON",
  });
  const editor = h(
    "details",
    { class: "more" },
    h("summary", null, "Edit the task"),
    h("p", { class: "hint" }, "The session gets this task instead of the one at that index."),
    edited,
  );
  editor.addEventListener("toggle", async () => {
    if (editor.open && edited.value === "")
      edited.value = await fetchTask(chosen.name, split, index).then(pretty, () => "{}");
  });
  const preview = h("div", { class: "task-preview" }, loading("the task"));
  fetchTask(chosen.name, split, index).then(
    (spec) => fill(preview, tree(spec)),
    (error) => fill(preview, failure(error)),
  );
  const required = chosen.required_secrets ?? [];
  const secrets = new SecretRows(required);
  const said = h("div");
  const open = h("button", { type: "submit", class: "primary" }, "Open the session");
  const onSubmit = async (event) => {
    event.preventDefault();
    open.disabled = true;
    await begin(
      chosen.name,
      { split, index: Number(at.value) || 0 },
      editor.open ? edited.value : null,
      secrets.read(),
      said,
    );
    open.disabled = false;
  };
  return h(
    "form",
    { class: "card", "aria-label": "Task", on: { submit: onSubmit } },
    h(
      "div",
      { class: "bar" },
      labelled(
        "Environment",
        select(
          all.map((one) => one.name),
          chosen.name,
          (name) => go(name),
        ),
      ),
      labelled(
        "Split",
        select(
          chosen.splits.map((one) => one.name),
          split,
          (name) => go(chosen.name, name, 0),
        ),
      ),
      labelled("Index", at),
    ),
    preview,
    editor,
    h(
      "details",
      { class: "more", open: required.length > 0 },
      h("summary", null, "Secrets"),
      required.length > 0 ? h("p", { class: "hint" }, `Required: ${required.join(", ")}.`) : null,
      h("p", { class: "hint" }, "Secrets are sent with the session and never shown."),
      secrets.element,
    ),
    h("div", { class: "actions" }, open),
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
  const trajectory = h("ol", { class: "steps", "aria-label": "Trajectory" });
  const summary = h("div", { class: "summary" });
  const tools = new ToolBox(episode);
  const over = new Over(episode);
  const items = new Map();
  const put = (step) => {
    const item = stepItem(step, () => tools.use(step.tool, step.input));
    if (items.has(step)) items.get(step).replaceWith(item);
    else trajectory.append(item);
    items.set(step, item);
  };
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
  const onStep = ({ detail: step }) => {
    put(step);
    onState();
    items.get(step).scrollIntoView({ block: "nearest" });
  };
  const onPing = ({ detail: step }) => tickRunning(items.get(step), step);
  const clock = setInterval(
    () => episode.running && tickRunning(items.get(episode.running), episode.running),
    100,
  );
  rewardRange(episode.environment).then((declared) => {
    range = declared;
    if (range) onState();
  });
  episode.addEventListener("step", onStep);
  episode.addEventListener("state", onState);
  episode.addEventListener("ping", onPing);
  onState();
  main.append(
    h("h1", null, "Play ", h("span", { class: "muted" }, named(episode))),
    h(
      "div",
      { class: "columns play" },
      h(
        "div",
        null,
        h(
          "section",
          { class: "card prompt", "aria-label": "Prompt" },
          h("h2", null, "Prompt"),
          promptBlocks(episode.prompt),
        ),
        trajectory,
      ),
      reachable(
        h(
          "div",
          { class: "side" },
          over.element,
          tools.element,
          h("section", { class: "card", "aria-label": "Episode" }, summary),
        ),
      ),
    ),
  );
  if (!episode.finished) tools.focus();
  window.scrollTo(0, 0);
  return () => {
    clearInterval(clock);
    episode.removeEventListener("step", onStep);
    episode.removeEventListener("state", onState);
    episode.removeEventListener("ping", onPing);
  };
}

const named = (episode) =>
  episode.from
    ? `${episode.environment} · ${episode.from.split} ${episode.from.index}`
    : `${episode.environment} · edited task`;

function summed(episode, rewards) {
  const state = episode.finished ? "finished" : episode.state;
  const words = {
    open: "open",
    finished: "finished",
    ended: "ended",
    lost: `lost: ${episode.why}`,
  }[state];
  return [
    h("h2", null, "Episode"),
    h(
      "dl",
      { class: "facts" },
      fact("State", h("span", { class: `state ${state}` }, words)),
      fact("Reward", h("b", { class: "total" }, reward(episode.total)), parts(episode.components)),
      fact("Calls", String(episode.steps.length)),
      fact("Session", h("code", { class: "sid" }, episode.sid)),
    ),
    rewards,
    h(
      "div",
      { class: "actions" },
      copyButton("Copy JSON", () => asJson(episode)),
      copyButton("Copy Python", () => asPython(episode)),
      copyButton("Copy curl", () => asCurl(episode)),
    ),
    h(
      "div",
      { class: "actions" },
      episode.state === "open"
        ? endButton(episode.running ? "Abort: delete the session" : "End the session", () =>
            episode.end(),
          )
        : null,
    ),
  ];
}

/** What to do after the end of an episode: the next task, or the same one again. */
class Over {
  #episode;
  #next; // the next task, if there is one
  element = h("section", { class: "card over", "aria-label": "What next", hidden: true });

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
    fill(
      this.element,
      h("p", null, words),
      h(
        "div",
        { class: "actions" },
        next ? button("Next task", () => this.#leave(next), { class: "primary" }) : null,
        again,
      ),
    );
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
  #tabs = h("div", { class: "tabs", role: "group", "aria-label": "Tools" });
  #call;
  #raw;

  constructor(episode) {
    this.#episode = episode;
    this.#call = h("button", { type: "submit", class: "primary" }, "Call");
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
      h(
        "div",
        { class: "actions" },
        this.#call,
        h("span", { class: "hint keys" }, "Ctrl+Enter"),
        this.#raw,
      ),
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
    this.element = h(
      "section",
      { class: "card tools", "aria-label": "Call a tool" },
      h("h2", null, "Call a tool"),
      this.#tabs,
      form,
    );
    this.use(this.#last()?.tool ?? episode.tools[0]?.name);
  }

  #last() {
    return this.#episode.steps.at(-1);
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
      fill(this.#holder, h("p", { class: "muted" }, "This task has no tools."));
      this.update();
      return;
    }
    this.#form = new Form(this.#tool.input_schema, input);
    this.#raw.setAttribute("aria-pressed", "false");
    const last = this.#tool.terminal
      ? h("p", { class: "hint" }, "Terminal tool: takes the agent's last message.")
      : null;
    fill(
      this.#holder,
      this.#tool.description ? h("p", { class: "described" }, this.#tool.description) : null,
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
    this.element.classList.toggle("closed", state !== "open");
    this.#call.textContent = running ? "Running…" : "Call";
    this.#call.classList.toggle("primary", !finished);
    this.element.hidden = state !== "open" && !running;
    this.element.classList.toggle("over", finished);
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
