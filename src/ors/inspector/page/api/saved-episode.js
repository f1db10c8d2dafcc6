// @ts-check
// The episode that this tab plays, kept so that a page that is loaded again comes back to it.

import { parse } from "./json.js";

const PLACE = "ors-episode";
const LARGE = {
  blocks: [{ type: "text", text: "Lost when the page was reloaded: too large." }],
};

/** Keeps an episode; of one that is too large, without the results of its calls. */
export function save(episode) {
  if (episode.sid === null) return;
  const { sid, environment, task, from, state, why, prompt, tools, secretNames } = episode;
  const steps = episode.steps.map(({ exchanges, ...step }) => step);
  const slim = steps.map((step) =>
    step.output
      ? { ...step, output: { ...step.output, ...LARGE, metadata: null } }
      : { ...step, error: step.error?.slice(0, 1000) },
  );
  const rest = { sid, environment, task, from, state, why, tools, secretNames };
  put({ ...rest, prompt, steps }) ||
    put({ ...rest, prompt: LARGE.blocks, steps: slim }) ||
    sessionStorage.removeItem(PLACE);
}

function put(value) {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(value));
    return true;
  } catch {
    return false; // more than a browser allows
  }
}

/** What was kept of the episode of a session, or null. */
export function load(sid) {
  const text = sessionStorage.getItem(PLACE);
  const kept = text === null ? null : parse(text);
  if (kept?.sid !== sid) return null;
  for (const step of kept.steps) {
    step.exchanges = [];
    step.began = performance.now() - (Date.now() - step.at * 1000);
  }
  return kept;
}
