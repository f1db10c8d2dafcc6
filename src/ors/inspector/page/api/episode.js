// @ts-check
// One episode played by this page: session, tools, calls and results.

import { listedTools } from "./catalogue.js";
import { load, save } from "./saved-episode.js";
import { decodeAll } from "./events.js";
import { parse } from "./json.js";
import { ask, Away, events, Refusal, send } from "./server.js";

const PING_MS = 10_000;
const REJOINS = 5;
const UNKNOWN = {
  status: "failed",
  error: "The connection broke; the tool may or may not have run.",
  reason: "connection",
};

/** Decodes the events of a call to `{status, output, error, reason}`. */
function outcomeOf(list) {
  const last = list.at(-1);
  if (last?.name === "error")
    return { status: "failed", error: last.data, reason: last.more.reason ?? "" };
  if (last?.name !== "end") return null;
  const result = parse(
    list
      .filter((event) => event.name === "chunk" || event.name === "end")
      .map((event) => event.data)
      .join(""),
  );
  if (!result.ok)
    return { status: "refused", error: String(result.error ?? ""), reason: result.reason ?? "" };
  return { status: "ok", output: result.output ?? {}, error: "", reason: "" };
}

/** Decodes the complete text of a stream. */
export const outcomeOfText = (text) =>
  outcomeOf(decodeAll(text).filter((event) => event.name !== ":"));

/** Encodes secrets for their header: base64 of JSON. */
function secretsHeader(secrets) {
  const wrapped = Object.fromEntries(
    Object.entries(secrets).map(([name, value]) => [name, { value }]),
  );
  return btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(wrapped))));
}

export class Episode extends EventTarget {
  constructor(environment, task) {
    super();
    this.environment = environment;
    this.task = task; // {split, index} or {task_spec}
    this.sid = null;
    this.state = "opening"; // then "open", "ended" or "lost"
    this.why = "";
    this.prompt = null;
    this.tools = [];
    this.steps = [];
    this.secretNames = [];
    this.from = null; // {split, index}, if the task was not edited
    this.timer = null;
  }

  /** The episode of a session that this tab has opened before it was loaded again; null if it has not. */
  static async restored(sid) {
    const kept = load(sid);
    if (kept === null) return null;
    const episode = Object.assign(new Episode(kept.environment, kept.task), kept);
    if (episode.state !== "open") return episode;
    episode.timer = setInterval(() => episode.#ping(), PING_MS);
    await episode.#ping();
    const cut = episode.running;
    if (cut?.taskId)
      episode.#finish(cut); // rejoins the call
    else if (cut) Object.assign(cut, UNKNOWN, { seconds: null });
    return episode;
  }

  get total() {
    const earned = this.steps
      .map((step) => step.output?.reward)
      .filter((one) => typeof one === "number");
    return earned.length ? earned.reduce((sum, one) => sum + one, 0) : null;
  }

  /** The sums of the named rewards. */
  get components() {
    const sums = {};
    for (const step of this.steps)
      for (const [name, value] of Object.entries(step.output?.metadata?.reward_components ?? {}))
        if (typeof value === "number") sums[name] = (sums[name] ?? 0) + value;
    return sums;
  }

  get finished() {
    return this.steps.some((step) => step.output?.finished);
  }

  get running() {
    return this.steps.find((step) => step.status === "running");
  }

  #told(what, detail) {
    if (what !== "ping") save(this);
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }

  #path(what) {
    return `${encodeURIComponent(this.environment)}/${what}`;
  }

  get #headers() {
    return { "X-Session-ID": this.sid };
  }

  /** Opens the session and requests the prompt and the tools. */
  async open(secrets) {
    this.secretNames = Object.keys(secrets);
    this.sid = await newSid();
    await this.#create(secrets);
    this.timer = setInterval(() => this.#ping(), PING_MS);
    try {
      const [prompt, tools] = await Promise.all([
        ask("GET", this.#path("prompt"), { headers: this.#headers }),
        this.#tools(),
      ]);
      this.prompt = prompt;
      this.tools = tools;
      this.state = "open";
    } catch (error) {
      this.#lose(error.message);
      throw error;
    } finally {
      this.#told("state");
    }
  }

  async #create(secrets) {
    const body = { env_name: this.environment, ...this.task };
    if (this.secretNames.length === 0) {
      await ask("POST", "create", { body, headers: this.#headers });
      return;
    }
    const headers = { ...this.#headers, "X-Secrets": secretsHeader(secrets) };
    try {
      await ask("POST", "create", { body: { ...body, secrets }, headers });
    } catch (error) {
      // openreward 0.1.167 reads only the header, and refuses the specification's field.
      if (!(error instanceof Refusal && error.status === 422)) throw error;
      await ask("POST", "create", { body, headers });
    }
  }

  async #tools() {
    try {
      return listedTools(await ask("GET", this.#path("task_tools"), { headers: this.#headers }));
    } catch (error) {
      if (!(error instanceof Refusal && error.status === 404)) throw error;
      return listedTools(await ask("GET", this.#path("tools")));
    }
  }

  async #ping() {
    try {
      await ask("POST", "ping", { headers: this.#headers, log: false });
    } catch (error) {
      if (error instanceof Refusal && (error.status === 404 || error.status === 410))
        this.#lose(error.message);
    }
  }

  #lose(why) {
    clearInterval(this.timer);
    if (this.state === "ended") return;
    this.state = "lost";
    this.why = why;
    this.#told("state");
  }

  /** Calls a tool; dispatches "step" events. */
  async call(tool, input) {
    const step = {
      n: this.steps.length + 1,
      tool,
      input,
      at: Date.now() / 1000,
      began: performance.now(),
      pings: 0,
      status: "running",
      taskId: null,
      exchanges: [],
    };
    this.steps.push(step);
    this.#told("step", step);
    return this.#finish(step);
  }

  async #finish(step) {
    const key = [...crypto.getRandomValues(new Uint8Array(16))]
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join("");
    Object.assign(step, await this.#outcome(step, key));
    step.seconds = (performance.now() - step.began) / 1000;
    this.#told("step", step);
    return step;
  }

  async #outcome(step, key) {
    for (let rejoin = 0; ; rejoin++) {
      try {
        const found = await this.#attempt(step, key);
        if (found) return found;
      } catch (error) {
        if (error instanceof Refusal) {
          if (error.status === 404 || error.status === 410) this.#lose(error.message);
          return { status: "failed", error: error.message, reason: `HTTP ${error.status}` };
        }
      }
      // Without a task id, the tool might run twice, so nothing is sent again.
      if (rejoin >= REJOINS || step.taskId === null) return UNKNOWN;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  async #attempt(step, key) {
    const body = {
      name: step.tool,
      input: step.input,
      ...(step.taskId ? { task_id: step.taskId } : {}),
    };
    const headers = { ...this.#headers, Accept: "text/event-stream", "Idempotency-Key": key };
    const { response, exchange } = await send("POST", this.#path("call"), { body, headers });
    step.exchanges.push(exchange);
    const found = [];
    try {
      for await (const event of events(response, exchange)) {
        if (event.name === ":") {
          step.pings += 1;
          this.#told("ping", step);
          continue;
        }
        if (event.name === "task_id") {
          step.taskId = event.data.trim();
          save(this);
        }
        found.push(event);
      }
    } catch (error) {
      exchange.fail(String(error.message ?? error));
      throw new Away("The connection broke.");
    }
    return outcomeOf(found);
  }

  /** Deletes the session, which also stops a running call. */
  async end() {
    clearInterval(this.timer);
    const was = this.state;
    this.state = "ended";
    this.#told("state");
    if (this.sid === null || was === "lost") return;
    await ask("POST", "delete", { headers: this.#headers }).catch(
      (error) => (this.why = error.message),
    );
    this.#told("state");
  }
}

async function newSid() {
  const { response, exchange } = await send("POST", "create_session", { body: {} });
  if (!(response.headers.get("content-type") ?? "").includes("text/event-stream")) {
    const text = await response.text();
    exchange.part(text);
    exchange.end();
    return parse(text).sid;
  }
  // ors-sdk 0.1.0 and openreward 0.1.167 always answer with a stream, whose task id is the session id.
  let sid = null;
  for await (const event of events(response, exchange))
    if (event.name === "task_id") sid = event.data.trim();
  return sid;
}
