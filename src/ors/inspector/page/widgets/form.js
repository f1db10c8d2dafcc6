// @ts-check
// A form generated from a tool's schema, with errors beside the fields.

import { button, el, fill, h, labelled } from "./dom.js";
import { fieldOf } from "./fields.js";
import { isObject, parse, pretty } from "../api/json.js";
import { problems } from "../api/schema.js";

/** The form of one tool. `read()` returns its input, or shows the errors and returns null. */
export class Form {
  #schema;
  #field = null;
  #raw = null;
  #fields = new Map();
  #body = el("div.form-body");
  #said = h("p.problem", { role: "alert", hidden: true });

  constructor(schema, given) {
    this.#schema = schema ?? { type: "object", properties: {} };
    this.element = el("div.form", this.#body, this.#said);
    this.#build(given ?? {});
  }

  get isRaw() {
    return this.#raw !== null;
  }

  get isEmpty() {
    return Object.keys(this.#schema.properties ?? {}).length === 0;
  }

  #build(given) {
    this.#raw = null;
    this.#fields = new Map();
    const context = { root: this.#schema, fields: this.#fields };
    this.#field = fieldOf({ ...this.#schema, title: undefined }, context, {
      path: "",
      name: "",
      required: true,
      depth: 0,
    });
    this.#field.write(given);
    fill(
      this.#body,
      this.isEmpty ? el("p.muted", "This tool takes no input.") : this.#field.element,
    );
  }

  /** Switches between form and JSON; shows an error if that is not possible. */
  toggleRaw() {
    const problem = this.#problem();
    if (this.#raw && problem) {
      this.#say([problem]);
      return;
    }
    const value = this.#value() ?? {};
    this.#say([]);
    if (this.#raw) {
      this.#build(value);
      return;
    }
    this.#raw = h("textarea.code", {
      rows: 8,
      spellcheck: "false",
      "aria-label": "Input as JSON",
      value: pretty(value),
    });
    fill(this.#body, labelled("Input as JSON", this.#raw));
    this.#raw.focus();
  }

  #problem() {
    if (!this.#raw) return null;
    try {
      return isObject(parse(this.#raw.value))
        ? null
        : { path: "", message: "The input must be a JSON object." };
    } catch (error) {
      return { path: "", message: `Not valid JSON: ${error.message}` };
    }
  }

  #value() {
    return this.#raw ? parse(this.#raw.value) : this.#field.read();
  }

  /** Returns the input, or shows the errors and returns null. */
  read() {
    const unreadable = this.#problem();
    if (unreadable) {
      this.#say([unreadable]);
      return null;
    }
    const value = this.#value() ?? {};
    const wrong = [...this.#unread(), ...problems(value, this.#schema)];
    this.#say(wrong);
    return wrong.length ? null : value;
  }

  #unread() {
    if (this.#raw) return [];
    return [...this.#fields].flatMap(([path, field]) =>
      field.unread?.() ? [{ path, message: field.unread() }] : [],
    );
  }

  #say(wrong) {
    for (const field of this.#fields.values()) field.say("");
    const loose = [];
    const placed = [];
    for (const { path, message } of wrong) {
      const field = this.#raw ? undefined : this.#fields.get(path);
      if (field === undefined) loose.push(path ? `${path} ${message}` : message);
      else if (!placed.includes(field)) {
        field.say(message);
        placed.push(field);
      }
    }
    this.#said.hidden = loose.length === 0;
    this.#said.textContent = loose.join("; ");
    if (wrong.length) (placed[0] ?? { focus: () => this.#raw?.focus() }).focus();
  }

  /** Focuses the first field. */
  focus() {
    this.element.querySelector("input, textarea, select")?.focus();
  }
}

/** Rows for names and secret values. */
export class SecretRows {
  #rows = el("div.secrets");

  /** Begins with a row for each of the names. */
  constructor(names = []) {
    const add = button("Add a secret", () => this.#add("").focus(), { class: "small" });
    this.element = el("div", this.#rows, add);
    names.forEach((name) => this.#add(name));
  }

  #add(known) {
    const name = h("input", {
      placeholder: "name",
      value: known,
      "aria-label": "Name of the secret",
      autocomplete: "off",
    });
    const value = h("input", {
      type: "password",
      placeholder: "value",
      "aria-label": "Value of the secret",
      autocomplete: "new-password",
    });
    const row = el(
      "div.row",
      name,
      value,
      button("Remove", () => row.remove(), { class: "small" }),
    );
    this.#rows.append(row);
    return name;
  }

  /** Returns the secrets by name. */
  read() {
    const rows = [...this.#rows.children].map((row) =>
      [...row.querySelectorAll("input")].map((input) => input.value),
    );
    return Object.fromEntries(rows.filter(([name]) => name !== ""));
  }
}
