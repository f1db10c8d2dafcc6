// @ts-check
// Panels of the view of a session, beside its calls. To add one, write a line of PANELS.

import { h } from "./dom.js";
import { same } from "../api/json.js";
import { promptBlocks, tree } from "./show.js";

const UNSEEN = "No prompt is kept: it was not asked for yet, or is too large.";
const card = (title, props, ...children) =>
  h("section", { class: "card", "aria-label": title, ...props }, h("h2", null, title), children);

/**
 * `of(session)` is what a panel shows of the row that the server tells of the session, with its `prompt`;
 * `draw(value)` returns an element, or null if there is nothing to show.
 */
const PANELS = [
  {
    of: ({ prompt }) => prompt,
    draw: (prompt) =>
      card(
        "Prompt",
        { class: "card prompt" },
        prompt ? promptBlocks(prompt) : h("p", { class: "muted" }, UNSEEN),
      ),
  },
  { of: ({ task }) => task, draw: (task) => card("Task", {}, tree(task)) },
];

/** The panels of one session; each is drawn again when its value has changed. */
export class Panels {
  #shown = PANELS.map(() => ({ value: undefined, element: null }));
  element = h("div", { class: "panels" });

  draw(session) {
    let changed = false;
    PANELS.forEach(({ of, draw }, n) => {
      const value = of(session);
      const { value: before } = this.#shown[n];
      if (value === before || (before !== undefined && same(value, before))) return;
      this.#shown[n] = { value, element: draw(value) };
      changed = true;
    });
    if (changed)
      this.element.replaceChildren(...this.#shown.map(({ element }) => element).filter(Boolean));
  }
}
