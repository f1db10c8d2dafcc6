// @ts-check
// Environments of the server: splits, tools, and pages of tasks.

import { about, ask, Refusal } from "./server.js";

/** @type {Promise<import("./types.js").EnvironmentInfo[]> | null} */
let known = null;

const path = (environment, what) => `${encodeURIComponent(environment)}/${what}`;

/**
 * Every environment.
 * @returns {Promise<import("./types.js").EnvironmentInfo[]>}
 */
export function environments() {
  known ??= (about.live ? fromInterface() : fromProtocol()).catch((error) => {
    known = null;
    throw error;
  });
  return known;
}

/** The range of rewards that an environment declares; null if there is none, or it is not known. */
export async function rewardRange(name) {
  const all = await environments().catch(() => []);
  return all.find((one) => one.name === name)?.reward_range ?? null;
}

/** Clears the cache, since another server may run now. */
export function forget() {
  known = null;
}

/**
 * All tools of a list, including the one for the agent's last message, which has `terminal`.
 * @param {any} listed
 * @returns {import("./types.js").Tool[]}
 */
export function listedTools(listed) {
  const last = listed.terminal_tool;
  const tools = listed.tools ?? listed;
  if (!last) return tools;
  const message = { type: "string", description: "The agent's last message." };
  const schema =
    last.arg === null || last.arg === undefined
      ? null
      : { type: "object", properties: { [last.arg]: message }, required: [last.arg] };
  return [
    ...tools,
    { name: last.name, description: last.description ?? "", input_schema: schema, terminal: true },
  ];
}

async function fromInterface() {
  const all = await ask("GET", "-/api/environments", { log: false });
  return all.map((one) => ({ ...one, tools: listedTools(one) }));
}

async function fromProtocol() {
  const names = await ask("GET", "list_environments");
  return Promise.all(
    names.map(async (name) => {
      const [splits, listed] = await Promise.all([
        ask("GET", path(name, "splits")),
        ask("GET", path(name, "tools")),
      ]);
      const named = splits.map((split) =>
        typeof split === "string" ? { name: split, type: "" } : split,
      );
      return {
        name,
        description: "",
        splits: named,
        tools: listedTools(listed),
        task_tools: [],
        required_secrets: listed.required_secrets ?? [],
        reward_range: listed.reward_range ?? null,
        reward_components: listed.reward_components ?? {},
      };
    }),
  );
}

/**
 * The description of an environment, or null if its server has none.
 * @param {string} environment
 * @returns {Promise<import("./types.js").Description | null>}
 */
export async function descriptionOf(environment) {
  try {
    const name = encodeURIComponent(environment);
    return await ask("GET", `-/environments/${name}?counts=false`, { log: false });
  } catch (error) {
    if (error instanceof Refusal) return null;
    throw error;
  }
}

/**
 * Number of tasks in a split, or null if the server does not count them.
 * @param {string} environment
 * @param {string} split
 * @returns {Promise<number | null>}
 */
export async function size(environment, split) {
  try {
    return (await ask("POST", path(environment, "num_tasks"), { body: { split }, log: false }))
      .num_tasks;
  } catch (error) {
    if (error instanceof Refusal) return null;
    throw error;
  }
}

/**
 * The tasks from `start` up to `stop`.
 * @param {string} environment
 * @param {string} split
 * @param {number} start
 * @param {number} stop
 * @returns {Promise<any[]>}
 */
export async function tasks(environment, split, start, stop) {
  return (await ask("POST", path(environment, "task_range"), { body: { split, start, stop } }))
    .tasks;
}

const SEARCHED = 500;

/**
 * Searches the tasks of a split from `start` on. A server without the interface is asked for its
 * tasks, which are searched here.
 * @param {string} environment
 * @param {string} split
 * @param {string} text
 * @param {number} start
 * @param {number | null} total
 * @returns {Promise<import("./types.js").FoundTasks>}
 */
export async function search(environment, split, text, start, total) {
  if (about.live) {
    const { tasks: found, next } = await ask(
      "GET",
      `-/api/tasks?${new URLSearchParams({ environment, split, text, from: String(start) })}`,
      { log: false },
    );
    return { found, next };
  }
  const listed = await tasks(
    environment,
    split,
    start,
    Math.min(start + SEARCHED, total ?? Infinity),
  );
  const wanted = JSON.stringify(text).slice(1, -1).toLowerCase();
  const found = listed
    .map((one, n) => ({ index: start + n, task: one }))
    .filter(({ task: one }) => JSON.stringify(one).toLowerCase().includes(wanted));
  return {
    found,
    next: listed.length < SEARCHED || start + SEARCHED >= total ? null : start + SEARCHED,
  };
}

/**
 * One task.
 * @param {string} environment
 * @param {string} split
 * @param {number} index
 */
export async function task(environment, split, index) {
  return (await ask("POST", path(environment, "task"), { body: { split, index } })).task;
}
