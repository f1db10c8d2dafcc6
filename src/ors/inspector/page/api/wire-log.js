// @ts-check
// Log for the wire view: recent requests with their raw answers.

const MOST = 400;
const MOST_CHARS = 300_000;
const HIDDEN = "•••";
const SECRET_HEADERS = new Set(["X-API-Key", "X-Secrets"]);

export const exchanges = [];
export const changes = new EventTarget();
let next = 1;

class Exchange {
  constructor(method, path, headers, body) {
    this.id = next++;
    this.method = method;
    this.path = path;
    this.headers = Object.fromEntries(
      Object.entries(headers).map(([k, v]) => [k, SECRET_HEADERS.has(k) ? HIDDEN : v]),
    );
    this.body = body === undefined ? null : shown(body);
    this.at = Date.now() / 1000;
    this.began = performance.now();
    this.status = null;
    this.answer = [];
    this.parts = [];
    this.chars = 0;
    this.left = 0;
    this.seconds = null;
    this.problem = null;
    this.foreign = false;
  }

  get elapsed() {
    return (performance.now() - this.began) / 1000;
  }

  answered(response) {
    this.status = response.status;
    this.answer = [...response.headers];
    this.changed();
  }

  /** Adds a part of the answer: an event of a stream, or a complete body. */
  part(text, name = "") {
    this.chars += text.length;
    const room = MOST_CHARS - this.kept();
    this.parts.push({
      t: this.elapsed,
      name,
      text: text.slice(0, Math.max(0, room)),
      length: text.length,
    });
    this.left += Math.max(0, text.length - Math.max(0, room));
    this.changed();
  }

  kept() {
    return this.chars - this.left;
  }

  end() {
    this.seconds = this.elapsed;
    this.changed();
  }

  fail(problem) {
    this.problem = problem;
    this.end();
  }

  changed() {
    changes.dispatchEvent(new CustomEvent("change", { detail: this }));
  }
}

function shown(body) {
  if (!body.secrets) return JSON.stringify(body);
  const secrets = Object.fromEntries(Object.keys(body.secrets).map((name) => [name, HIDDEN]));
  return JSON.stringify({ ...body, secrets });
}

/** Logs a request that is about to be sent. */
export function begin(method, path, headers, body) {
  const exchange = new Exchange(method, path, headers, body);
  add(exchange);
  return exchange;
}

function add(exchange) {
  exchanges.push(exchange);
  if (exchanges.length > MOST) exchanges.shift();
  exchange.changed();
}

/** Logs a call of another client, as reported by the server. */
export function beginForeign(environment, sid, tool, input) {
  const body = input === undefined ? undefined : { name: tool, input };
  const exchange = new Exchange("POST", `/${environment}/call`, { "X-Session-ID": sid }, body);
  exchange.foreign = true;
  exchange.status = 200;
  add(exchange);
  return exchange;
}

export const byId = (id) => exchanges.find((exchange) => exchange.id === id);
