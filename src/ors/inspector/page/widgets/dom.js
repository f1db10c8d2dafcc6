// @ts-check
// Creates all elements of the page. Text is inserted as text, never as markup.

import { named } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

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
  node.append(
    ...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

/** An HTML element; `on` holds its listeners. */
export const h = (tag, props, ...children) => filled(document.createElement(tag), props, children);

/** An SVG element. */
export const s = (tag, props, ...children) =>
  filled(document.createElementNS(SVG, tag), props, children);

/** Replaces the children of `node`. */
export function fill(node, ...children) {
  node.replaceChildren(
    ...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false),
  );
}

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
export function copyButton(label, text, props = {}) {
  return button(
    label,
    async (_, node) => {
      await copied(text());
      node.textContent = "Copied";
      setTimeout(() => (node.textContent = label), 1200);
    },
    { class: "small", ...props },
  );
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard API needs TLS or localhost; the old way works everywhere.
    const area = h("textarea", { class: "offscreen", value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** A button for a destructive action, which asks for confirmation. */
export function endButton(label, act) {
  const node = h("button", { type: "button", class: "small danger" }, label);
  let asked = null;
  const calm = () => {
    clearTimeout(asked);
    asked = null;
    node.textContent = label;
  };
  node.addEventListener("click", async () => {
    if (asked === null) {
      node.textContent = "Really?";
      asked = setTimeout(calm, 3000);
      return;
    }
    calm();
    node.disabled = true;
    try {
      await act();
    } finally {
      node.disabled = false;
    }
  });
  return node;
}

/** A select element; `options` are values or [value, label]. */
export function select(options, chosen, onChange, props = {}) {
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
  return h("label", { class: "labelled" }, h("span", null, label), control);
}

/** A name and its value, in a list of facts. */
/** Named rewards in small print below a reward, or null. */
export const parts = (components) => {
  const words = named(components);
  return words && h("span", { class: "parts" }, words);
};

export const fact = (name, ...value) => [h("dt", null, name), h("dd", null, value)];

/** Texts shown while something loads, and when that fails. */
export const loading = (what) => h("p", { class: "muted" }, `Loading ${what}…`);
export const failure = (error) =>
  h("p", { class: "problem", role: "alert" }, String(error.message ?? error));
