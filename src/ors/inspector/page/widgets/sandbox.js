// @ts-check
// The sandbox of a watched session: its processes, memory and files. Read-only.

import { el, fact, facts, fill, h } from "./dom.js";
import { ask, Away, Refusal } from "../api/server.js";
import { cellsOf, headRow, tableOf } from "./table.js";
import { bytes, plural, seconds } from "./words.js";

const EVERY_MS = 2000;
const FEW_FILES = 20;

/** @type {import("./table.js").Column<any>[]} */
const COLUMNS = [
  { title: "Process", cell: ({ pid }) => String(pid) },
  { title: "Command", cell: ({ command }) => el("code", command) },
  { title: "State", cell: ({ state }) => state },
  { title: "Memory", cell: ({ memory }) => bytes(memory) },
  { title: "CPU time", cell: (one) => seconds(one.cpu_seconds) },
];

/** The panel of a session; empty and hidden while there is no sandbox. */
export class SandboxPanel {
  node = h("section.card.sandbox", { "aria-label": "Sandbox", hidden: true });
  #body = h("div");
  #files = el("details.branch");
  #known = "";
  #turn = 0;
  #timer = null;

  constructor(sid) {
    this.path = `-/api/sandbox/${encodeURIComponent(sid)}`;
    this.node.append(el("h2", "Sandbox"), this.#body, this.#files);
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
    if (this.node.hidden) this.#files.open = box.files.length <= FEW_FILES;
    this.node.hidden = false;
    const rows = box.processes.map((one) => el("tr", cellsOf(COLUMNS, one)));
    fill(
      this.#body,
      facts(
        fact("Backend", box.backend),
        fact("Memory", `${bytes(box.memory)} of ${bytes(box.memory_limit)}`),
        box.places.map((place) =>
          fact(el("code", place.path), `${bytes(place.used)} of ${bytes(place.size)}`),
        ),
      ),
      rows.length
        ? tableOf("processes", el("thead", headRow(COLUMNS)), el("tbody", rows))
        : el("p.muted", "No program is running."),
    );
    fill(
      this.#files,
      el("summary", plural(box.files.length, "file and folder", "files and folders")),
      el("div.branches.files", box.files.map(fileItem)),
    );
  }
}

function fileItem({ kind, size, path }) {
  const more = el("span.muted", kind === "file" ? bytes(size) : kind);
  return el("div.leaf", el("code", path), " ", more);
}
