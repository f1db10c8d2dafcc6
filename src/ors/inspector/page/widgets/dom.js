// @ts-check
// Creates all elements of the page. Text is inserted as text, never as markup.

import { named } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

const present = (children) =>
  children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false);

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "value" || name === "checked" || name === "indeterminate") {
      node[name] = value;
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...present(children));
  return node;
}

/** An HTML element of a tag and classes, such as "p.muted"; `on` holds its listeners. */
export function h(selector, props, ...children) {
  const [tag, ...classes] = selector.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  return filled(node, props, children);
}

/** An HTML element without other attributes. */
export const el = (selector, ...children) => h(selector, null, children);

/** An SVG element. */
export const s = (tag, props, ...children) =>
  filled(document.createElementNS(SVG, tag), props, children);

/** Replaces the children of `node`. */
export const fill = (node, ...children) => node.replaceChildren(...present(children));

// Those who use a keyboard must be able to scroll whatever scrolls.
const scrolled = new ResizeObserver((entries) => {
  for (const { target: node } of entries) {
    if (node.scrollHeight > node.clientHeight + 1 || node.scrollWidth > node.clientWidth + 1)
      node.setAttribute("tabindex", "0");
    else node.removeAttribute("tabindex");
  }
});

/** Makes an element reachable by keyboard while it is larger inside than outside. */
export function reachable(node) {
  scrolled.observe(node);
  return node;
}

let made = 0;

/** A unique id. */
export const freshId = (prefix) => `${prefix}-${++made}`;

/** A button that runs `act`, and is disabled while `act` runs. */
export function button(label, act, props = {}) {
  const node = h("button", { type: "button", ...props }, label);
  node.addEventListener("click", async (event) => {
    node.disabled = true;
    try {
      await act(event, node);
    } finally {
      node.disabled = false;
    }
  });
  return node;
}

/** A button that copies text to the clipboard and confirms it. */
export function copyButton(label, text) {
  return button(
    label,
    async (_, node) => {
      await copied(text());
      node.textContent = "Copied";
      setTimeout(() => (node.textContent = label), 1200);
    },
    { class: "small" },
  );
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard API needs TLS or localhost; the old way works everywhere.
    const area = h("textarea.offscreen", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** A button for a destructive action, which asks for confirmation. */
export function endButton(label, act) {
  let calm = null;
  return button(
    label,
    async (_, node) => {
      clearTimeout(calm);
      const sure = node.textContent !== label;
      node.textContent = sure ? label : "Really?";
      if (sure) await act();
      else calm = setTimeout(() => (node.textContent = label), 3000);
    },
    { class: "small danger" },
  );
}

/**
 * A select element; `options` are values or [value, label].
 * @param {any[]} options
 * @param {string} chosen
 * @param {(value: string) => any} [onChange]
 * @param {Record<string, any>} [props]
 */
export function select(options, chosen, onChange = () => {}, props = {}) {
  const node = h(
    "select",
    { ...props, on: { change: () => onChange(node.value) } },
    options.map((option) => {
      const [value, label] = Array.isArray(option) ? option : [option, option];
      return h("option", { value, selected: value === chosen }, label);
    }),
  );
  return node;
}

/** A label above a control. */
export function labelled(label, control) {
  return el("label.labelled", el("span", label), control);
}

/** Named rewards in small print below a reward, or null. */
export const parts = (components) => {
  const words = named(components);
  return words && el("span.parts", words);
};

/** A card with a title; `kind` are more of its classes. */
export const card = (title, kind, ...children) =>
  h("section", { class: `card ${kind}`, "aria-label": title }, el("h2", title), children);

/** Buttons and links in a row. */
export const actions = (...children) => el("div.actions", children);

/** A list of facts, each a name and its value. */
export const facts = (...rows) => el("dl.facts", rows);
export const fact = (name, ...value) => [el("dt", name), el("dd", value)];

/**
 * Calls `turn(1)` or `turn(-1)` at an arrow key that nothing else uses; returns a function that stops this.
 * @param {(step: number) => any} turn
 */
export function arrowKeys(turn) {
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const modified = event.ctrlKey || event.metaKey || event.altKey;
    const used = event.target.closest("input, textarea, select, pre, .scroll, .detail-pane");
    if (step && !modified && !used) turn(step);
  };
  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}

/** Texts shown while something loads, and when that fails. */
export const loading = (what) => el("p.muted", `Loading ${what}…`);
export const failure = (error) => h("p.problem", { role: "alert" }, String(error.message ?? error));
