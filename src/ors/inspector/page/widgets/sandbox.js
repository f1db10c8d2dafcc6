// @ts-check
// The sandbox of a watched session: its processes, memory and files. Read-only.

import { fact, fill, h } from "./dom.js";
import { ask, Away, Refusal } from "../api/server.js";
import { bytes, plural, seconds } from "./words.js";

const EVERY_MS = 2000;
const FEW_FILES = 20;

/** The panel of a session; empty and hidden while there is no sandbox. */
export class SandboxPanel {
  node = h("section", { class: "card sandbox", "aria-label": "Sandbox", hidden: true });
  #body = h("div");
  #files = h("details", { class: "branch" });
  #known = "";
  #turn = 0;
  #timer = null;

  constructor(sid) {
    this.path = `-/api/sandbox/${encodeURIComponent(sid)}`;
    this.node.append(h("h2", null, "Sandbox"), this.#body, this.#files);
  }

  /** Looks again when the session has changed, and now and then while it lives. */
  follow({ state, calls, running }) {
    const known = `${state} ${calls} ${running}`;
    if (state === "deleted" || state === "ended") this.stop();
    else if (known !== this.#known) this.#look();
    this.#known = known;
  }

  stop() {
    this.#turn += 1;
    clearTimeout(this.#timer);
    this.node.hidden = true;
  }

  async #look() {
    const turn = (this.#turn += 1);
    clearTimeout(this.#timer);
    const found = document.hidden ? undefined : await this.#asked();
    if (turn !== this.#turn) return;
    if (found === null) {
      this.stop();
      return;
    }
    if (found) this.#show(found);
    this.#timer = setTimeout(() => this.node.isConnected && this.#look(), EVERY_MS);
  }

  async #asked() {
    try {
      return await ask("GET", this.path, { log: false });
    } catch (error) {
      if (error instanceof Refusal) return null; // the session has ended
      if (error instanceof Away) return undefined;
      throw error;
    }
  }

  #show(box) {
    const cells = (...values) =>
      h(
        "tr",
        null,
        values.map((value) => h("td", null, value)),
      );
    const row = (one) =>
      cells(
        String(one.pid),
        h("code", null, one.command),
        one.state,
        bytes(one.memory),
        seconds(one.cpu_seconds),
      );
    if (this.node.hidden) this.#files.open = box.files.length <= FEW_FILES;
    this.node.hidden = false;
    fill(
      this.#body,
      h(
        "dl",
        { class: "facts" },
        fact("Backend", box.backend),
        fact("Memory", `${bytes(box.memory)} of ${bytes(box.memory_limit)}`),
        box.places.map((place) =>
          fact(h("code", null, place.path), `${bytes(place.used)} of ${bytes(place.size)}`),
        ),
      ),
      box.processes.length === 0
        ? h("p", { class: "muted" }, "No program runs.")
        : h(
            "table",
            { class: "processes" },
            h(
              "thead",
              null,
              h(
                "tr",
                null,
                ["Process", "Command", "State", "Memory", "CPU time"].map((name) =>
                  h("th", { scope: "col" }, name),
                ),
              ),
            ),
            h("tbody", null, box.processes.map(row)),
          ),
    );
    fill(
      this.#files,
      h("summary", null, plural(box.files.length, "file and folder", "files and folders")),
      h("div", { class: "branches files" }, box.files.map(fileItem)),
    );
  }
}

function fileItem({ kind, size, path }) {
  const more = kind === "file" ? bytes(size) : kind;
  return h(
    "div",
    { class: "leaf" },
    h("code", null, path),
    " ",
    h("span", { class: "muted" }, more),
  );
}
