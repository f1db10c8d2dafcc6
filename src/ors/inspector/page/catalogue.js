// What the server offers: environments, their splits and tools, tasks by the page.

import { about, ask, Refusal } from "./server.js";

let known = null;

const path = (environment, what) => `${encodeURIComponent(environment)}/${what}`;

/** Every environment: `{name, description, splits, tools, task_tools}`. */
export function environments() {
  known ??= (about.live ? ask("GET", "-/api/environments", { log: false }) : fromProtocol()).catch((error) => {
    known = null;
    throw error;
  });
  return known;
}

/** Forgets what was learnt, as the server may be another one now. */
export function forget() {
  known = null;
}

async function fromProtocol() {
  const names = await ask("GET", "list_environments");
  return Promise.all(
    names.map(async (name) => {
      const [splits, listed] = await Promise.all([ask("GET", path(name, "splits")), ask("GET", path(name, "tools"))]);
      const named = splits.map((split) => (typeof split === "string" ? { name: split, type: "" } : split));
      return { name, description: "", splits: named, tools: listed.tools ?? listed, task_tools: [] };
    }),
  );
}

/** How many tasks a split has, or null where the server does not count them. */
export async function size(environment, split) {
  try {
    return (await ask("POST", path(environment, "num_tasks"), { body: { split }, log: false })).num_tasks;
  } catch (error) {
    if (error instanceof Refusal) return null;
    throw error;
  }
}

/** The tasks from `start` up to `stop`. */
export async function tasks(environment, split, start, stop) {
  return (await ask("POST", path(environment, "task_range"), { body: { split, start, stop } })).tasks;
}

/** One task. */
export async function task(environment, split, index) {
  return (await ask("POST", path(environment, "task"), { body: { split, index } })).task;
}
