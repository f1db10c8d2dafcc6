// @ts-check
// One recorded episode: its conversation, and beside it its outcome, rewards and times.

import {
  actions,
  arrowKeys,
  button,
  card,
  copyButton,
  el,
  fact,
  facts,
  failure,
  fill,
  h,
  loading,
  parts,
  reachable,
} from "../widgets/dom.js";
import { conversation, ending, stepOf } from "../widgets/conversation.js";
import { pretty } from "../api/json.js";
import { address, blob, crumbs, outcomeBadge, recorded } from "../widgets/recorded.js";
import { filtersOf } from "./run.js";
import { tree } from "../widgets/show.js";
import { rewardPlot } from "../widgets/steps.js";
import { timeline } from "../widgets/timeline.js";
import { count, plural, reward, seconds, when } from "../widgets/words.js";

/** #/runs/RUN/EPISODE?FILTERS&row=N */
export async function show(main, [run, id], state) {
  const kept = { ...filtersOf(state), row: state.get("row") ?? "" };
  main.append(loading("the episode"));
  const told = await recorded("/episode", { run, id, ...filtersOf(state) });
  const addressOf = (other) => address(["runs", run, other], kept);
  const turn = (label, other) =>
    other === null
      ? h("span.button.small", { "aria-disabled": "true" }, label)
      : h("a.button.small", { href: addressOf(other) }, label);
  const where =
    told.position === null ? "" : `${count(told.position + 1)} of ${plural(told.found, "episode")}`;
  const view = new EpisodeColumn(run, told);
  const copy = copyButton("Copy JSON", () => pretty(told.episode));
  const side = card("Episode", "side", factsOf(told), plots(told, view), actions(copy));
  fill(
    main,
    crumbs(["Runs", "#/runs"], [run, address(["runs", run], kept)], [taskName(told)]),
    h(
      "nav.pager",
      { "aria-label": "Episodes" },
      turn("‹ Previous", told.previous),
      turn("Next ›", told.next),
      el("span.where", where),
    ),
    el("div.columns.play", view.element, reachable(side)),
  );
  return arrowKeys((step) => {
    const other = step > 0 ? told.next : told.previous;
    if (other !== null) location.hash = addressOf(other);
  });
}

/** The task of an episode, and which sample of it this is. */
const taskName = ({ task, episode }) => `${task}${episode.sample ? ` #${episode.sample}` : ""}`;

/** The conversation of an episode, of which long ones come in parts. */
export class EpisodeColumn {
  #list = h("ol.steps.turns", { "aria-label": "Conversation" });
  #more = el("div.actions");
  #load;

  constructor(run, told) {
    this.run = run;
    this.id = told.episode.id;
    this.episode = told.episode;
    this.told = 0;
    this.calls = 0;
    this.#load = (name) => blob(run, name);
    this.element = el("div.conversation", this.#list, this.#more);
    this.#add(told);
  }

  /** Scrolls to a call. */
  jump(n) {
    this.#list.querySelector(`[data-step="${n}"]`)?.scrollIntoView({ block: "start" });
  }

  #add({ episode, messages: total }) {
    this.told += episode.messages.length;
    const last = this.told >= total || episode.messages.length === 0;
    const { items, calls } = conversation(
      episode.messages,
      last ? episode.outcome : null,
      this.#load,
      this.calls + 1,
    );
    this.calls += calls;
    this.#list.append(...items);
    if (last)
      fill(
        this.#more,
        (this.episode.earlier ?? []).map((each, n) => [
          el("p.hint", `Attempt ${n + 1}:`),
          ending(each),
        ]),
        ending(this.episode),
      );
    else
      fill(
        this.#more,
        button(`Show more: ${count(total - this.told)} of ${plural(total, "message")} remain`, () =>
          this.#next(),
        ),
      );
  }

  async #next() {
    try {
      this.#add(await recorded("/episode", { run: this.run, id: this.id, from: this.told }));
    } catch (error) {
      this.#more.append(failure(error));
    }
  }
}

/** Outcome, reward, tokens and times of an episode. */
export function factsOf({ episode, detail }) {
  const { outcome, tokens, rewards } = episode;
  return facts(
    fact("Reward", el("b.total", reward(episode.reward)), parts(episode.components)),
    fact("Outcome", outcomeBadge(outcome.type, detail, episode.reward)),
    fact("Agent", episode.agent || "–"),
    fact("Environment", episode.environment),
    fact("Began", when(episode.started)),
    fact("Time", seconds(episode.seconds)),
    fact("Calls", count(rewards.length)),
    fact("Tokens", tokenWords(tokens)),
    tokens?.cost ? fact("Cost", String(tokens.cost)) : null,
    episode.attempts > 1 ? fact("Attempts", count(episode.attempts)) : null,
  );
}

/** The rewards and times of an episode as plots, and its task if it was given whole. */
export function plots({ episode, messages: total, range }, view) {
  const steps = episode.rewards.map((earned, n) => ({
    n: n + 1,
    status: "ok",
    output: { reward: earned },
  }));
  const results = episode.messages
    .filter((message) => message.role === "tool")
    .map((message, n) => stepOf(message, null, n + 1));
  return [
    el("h3", "Rewards"),
    rewardPlot(steps, range),
    el("h3", "Time"),
    timeline(results, episode.messages, episode.seconds, (n) => view.jump(n)),
    episode.messages.length < total
      ? el("p.hint", `Times of the first ${count(episode.messages.length)} messages.`)
      : null,
    episode.task ? [el("h3", "Task"), tree(episode.task)] : null,
  ];
}

function tokenWords(tokens) {
  if (!tokens) return "–";
  const cached = tokens.cached_tokens ? `, ${count(tokens.cached_tokens)} cached` : "";
  return `${count(tokens.input_tokens ?? 0)} in, ${count(tokens.output_tokens ?? 0)} out${cached}`;
}
