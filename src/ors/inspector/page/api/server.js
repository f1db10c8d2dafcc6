// @ts-check
// The server: requests, connection state, and API key.

import { Decoder } from "./events.js";
import { parse } from "./json.js";
import { begin } from "./wire-log.js";

const ROOT = new URL("..", location.href.split("#")[0]);
const KEY = "ors-api-key";
const TOKEN = "ors-inspect-token";
const BEAT_MS = 4000;
const AWAY_BEAT_MS = 1000;

keepToken();

/** Stores the token of `ors inspect` for this tab and removes it from the address. */
function keepToken() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (token === null) return;
  sessionStorage.setItem(TOKEN, token);
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

/** The server refused a request. */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** The server did not answer. */
export class Away extends Error {}

/** Dispatches "away" and "back" for the server, and "locked" if a key is needed. */
export const state = new EventTarget();
/** @type {import("./types.js").About} */
export let about = { version: "", server: null, live: false, runs: false, serves: true };
let away = null;

function setAway(reason) {
  const was = away;
  away = reason;
  if (Boolean(was) !== Boolean(reason)) state.dispatchEvent(new Event(reason ? "away" : "back"));
}

export const whyAway = () => away;
export const serverUrl = () => about.server ?? ROOT.href.replace(/\/$/, "");
export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const setKey = (key) => sessionStorage.setItem(KEY, key);

/**
 * @typedef {object} Options
 * @property {any} [body]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {boolean} [log] Whether the wire view shows the request.
 */

/**
 * Sends a request; returns the response once its headers have arrived.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 */
export async function send(method, path, { body, headers = {}, signal, log = true } = {}) {
  const sent = { ...headers };
  const key = sessionStorage.getItem(KEY);
  if (key) sent["X-API-Key"] = key;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  const exchange = log ? begin(method, `/${path}`, sent, body) : null;
  const token = sessionStorage.getItem(TOKEN); // only for `ors inspect`, which does not forward it
  let response;
  try {
    response = await fetch(new URL(path, ROOT), {
      method,
      headers: token ? { ...sent, [TOKEN]: token } : sent,
      body: text,
      signal,
      cache: "no-store",
    });
  } catch (error) {
    exchange?.fail(String(error.message ?? error));
    if (signal?.aborted) throw error;
    setAway("It does not answer.");
    throw new Away("The server does not answer.");
  }
  exchange?.answered(response);
  await check(response, exchange);
  return { response, exchange };
}

async function check(response, exchange) {
  if (response.status === 502) {
    const detail = await detailOf(response, exchange);
    setAway(detail);
    throw new Away(detail);
  }
  setAway(null);
  if (response.status === 401) state.dispatchEvent(new Event("locked"));
  if (!response.ok) throw new Refusal(response.status, await detailOf(response, exchange));
}

async function detailOf(response, exchange) {
  const text = await response.text().catch(() => "");
  exchange?.part(text);
  exchange?.end();
  try {
    const { detail } = JSON.parse(text);
    return typeof detail === "string" ? detail : JSON.stringify(detail);
  } catch {
    return text.slice(0, 500) || `The server answered ${response.status}.`;
  }
}

/**
 * Sends a request; returns the JSON of the answer.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function ask(method, path, options) {
  const { response, exchange } = await send(method, path, options);
  let text;
  try {
    text = await response.text();
  } catch {
    exchange?.fail("The connection broke.");
    throw new Away("The connection broke.");
  }
  exchange?.part(text);
  exchange?.end();
  return parse(text);
}

/**
 * Yields the events of a stream as they arrive.
 * @param {Response} response
 * @param {any} [exchange]
 */
export async function* events(response, exchange) {
  const decoder = new Decoder();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  while (true) {
    const { value, done } = await reader.read();
    if (done) break;
    for (const event of decoder.feed(value)) {
      exchange?.part(event.raw + "\n\n", event.name);
      yield event;
    }
  }
  exchange?.end();
}

/**
 * Reads a stream below /-/api/ while the page is visible, and reconnects.
 * @param {string} path
 * @param {(name: string, value: any) => void} onEvent
 * @param {(error: Refusal) => void} [onRefusal]
 * @returns {() => void} stops it
 */
export function follow(path, onEvent, onRefusal = () => {}) {
  const over = new AbortController();
  let reading = null;
  const read = async () => {
    while (!over.signal.aborted && !document.hidden) {
      reading = new AbortController();
      try {
        const { response } = await send("GET", path, { signal: reading.signal, log: false });
        for await (const event of events(response))
          if (event.name !== ":") onEvent(event.name, parse(event.data));
      } catch (error) {
        if (error instanceof Refusal) {
          onRefusal(error);
          return;
        }
      }
      await new Promise((done) => setTimeout(done, AWAY_BEAT_MS));
    }
  };
  let running = read();
  const onShown = () => {
    // A hidden page must not use the server, nor one of the browser's few connections.
    if (document.hidden) reading?.abort();
    else running = running.then(read);
  };
  document.addEventListener("visibilitychange", onShown);
  return () => {
    over.abort();
    reading?.abort();
    document.removeEventListener("visibilitychange", onShown);
  };
}

/** Requests the version and features of the server. */
export async function loadAbout() {
  about = await ask("GET", "-/api/about", { log: false });
  return about;
}

export async function keepChecking() {
  if (!document.hidden) await ask("GET", "health", { log: false }).catch(() => {});
  setTimeout(keepChecking, away ? AWAY_BEAT_MS : BEAT_MS);
}
