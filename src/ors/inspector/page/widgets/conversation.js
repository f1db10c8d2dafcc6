// @ts-check
// A recorded episode as a conversation: messages, calls with their results, rewards and times.

import { button, el, fill, h } from "./dom.js";
import { isObject } from "../api/json.js";
import { promptBlocks, rich, text } from "./show.js";
import { stepItem } from "./steps.js";
import { count, plural, reward, seconds } from "./words.js";

const FOLD_CHARS = 1500;
const FOLD_LINES = 20;

/** The messages as items of a list; `load` fetches blobs, `first` is the number of the first call. */
export function conversation(messages, outcome, load, first) {
  const items = [];
  let n = first;
  let open = [];
  let words = "";
  for (const message of messages) {
    if (message.role === "tool") {
      const at = Math.max(
        0,
        open.findIndex((call) => call.id === message.call),
      );
      // A @terminal tool takes the agent's last message, and has no call of its own.
      const [call] =
        open.length || message.call ? open.splice(at, 1) : [{ input: { message: words } }];
      items.push(folded(stepItem(stepOf(message, call, n++, load))));
      continue;
    }
    items.push(...open.map((call) => unanswered(call, n++, load)));
    open = Array.isArray(message.calls) ? message.calls.filter(isObject) : [];
    if (message.role === "assistant") words = String(message.text ?? "");
    if (!isSilent(message)) items.push(folded(said(message, load)));
  }
  const left = outcome?.type === "failed" && outcome.stage === "call" ? outcome : null;
  return {
    items: [...items, ...open.map((call) => unanswered(call, n++, load, left))],
    calls: n - first,
  };
}

/** A tool message as a step of a trajectory. */
export function stepOf(message, call, n, load) {
  const { name: tool, ok, reason, reward: earned, finished, metadata, blocks: list } = message;
  const refused = Array.isArray(list) ? list.map((block) => block?.text ?? "").join("\n") : "";
  return {
    n,
    tool: String(tool),
    input: inputOf(call),
    status: ok === false ? "refused" : "ok",
    output: { blocks: list, reward: earned, finished, metadata },
    error: refused,
    reason,
    started: number(message.started),
    seconds: number(message.seconds),
    load,
  };
}

// Records may come from anywhere, and only the beginning of a line was checked.
const number = (value) => (typeof value === "number" ? value : undefined);
const inputOf = (call) =>
  typeof call?.raw === "string"
    ? { not_a_json_object: call.raw }
    : isObject(call?.input)
      ? call.input
      : null;

function unanswered(call, n, load, failed = null) {
  const why = failed ? `${failed.error}: ${failed.message}` : "The record has no result.";
  return folded(
    stepItem({
      n,
      tool: String(call.name),
      input: inputOf(call),
      status: "failed",
      error: call.error ?? why,
      reason: "",
      seconds: null,
      load,
    }),
  );
}

/** A message of the agent with nothing to read: its calls follow. */
const isSilent = ({ role, text: words, reasoning, stop, calls }) =>
  role === "assistant" && !words && !reasoning && (!stop || stop === "stop") && calls?.length > 0;

function said(message, load) {
  if (message.role === "system") return turn("system", "System", [], [rich(String(message.text))]);
  if (message.role === "user")
    return turn("user", "Prompt", [], promptBlocks(message.blocks, load));
  if (message.role !== "assistant")
    return turn("user", "Unknown message", [], [text(JSON.stringify(message, null, 2))]);
  const { text: words, reasoning, stop, usage } = message;
  const marks = [
    stop && stop !== "stop" ? el("span.badge.refused", stop === "length" ? "cut off" : stop) : null,
    number(message.seconds) ? el("span.muted.elapsed", seconds(message.seconds)) : null,
    number(usage?.output_tokens)
      ? el("span.muted.elapsed", plural(usage.output_tokens, "token"))
      : null,
  ];
  const thoughts = reasoning
    ? el(
        "details.reasoning",
        el("summary", `Reasoning, ${count(String(reasoning).length)} characters`),
        text(String(reasoning)),
      )
    : null;
  return turn("agent", "Agent", marks, [thoughts, words ? rich(String(words)) : null]);
}

function turn(kind, who, marks, content) {
  return h("li", { class: `turn ${kind}` }, el("div.turn-head", el("b", who), marks), content);
}

/** Folds the long texts of an item. */
function folded(item) {
  for (const long of item.querySelectorAll("pre.text, .markdown")) {
    if (long.parentElement.closest(".markdown")) continue; // a part of a text that is folded as a whole
    const shown = long.textContent;
    if (
      long.closest(".long") ||
      (shown.length <= FOLD_CHARS && shown.split("\n", FOLD_LINES + 1).length <= FOLD_LINES)
    )
      continue;
    const box = el("div.fold");
    long.replaceWith(box);
    const more = button(
      `Show all ${count(shown.length)} characters`,
      () => {
        const open = box.classList.toggle("open");
        more.textContent = open ? "Show less" : `Show all ${count(shown.length)} characters`;
        more.setAttribute("aria-expanded", String(open));
      },
      { class: "small", "aria-expanded": "false" },
    );
    fill(box, long, more);
  }
  return item;
}

/** How an episode ended, in words. */
export function ending({ outcome, reward: earned }) {
  const type = ENDINGS[outcome?.type] ? outcome.type : "failed";
  const [title, words] = ENDINGS[type];
  const counted = typeof earned === "number" ? `Reward ${reward(earned)}.` : "It has no reward.";
  return h(
    "div",
    { class: `ending ${type}` },
    el("p", el("b", title), " ", words(outcome ?? {}), counted),
    outcome?.error ? text(`${outcome.error}: ${outcome.message ?? ""}`) : null,
  );
}

const ENDINGS = {
  scored: ["Scored.", () => null],
  unscored: ["Unscored.", () => "The episode ended, and the environment gave no reward. "],
  truncated: [
    "Truncated.",
    ({ limit, detail }) => `The episode reached its limit of ${limit}. ${detail ?? ""} `,
  ],
  refused: [
    "Refused.",
    () => "The model refused to continue, or its provider withheld the reply. ",
  ],
  failed: [
    "Failed.",
    ({ who, stage, may_have_run: ran }) =>
      `${WHO[who] ?? "Something"} failed ${STAGES[stage] ?? ""}. ` +
      (ran ? "A call whose result is unknown may have run. " : ""),
  ],
};
const WHO = {
  agent: "The agent",
  model: "The model provider",
  environment: "The environment",
  infrastructure: "The infrastructure",
};
const STAGES = {
  opening: "while opening the session",
  prompt: "at the prompt",
  model: "during a model request",
  call: "at a call",
  closing: "while closing the session",
};
