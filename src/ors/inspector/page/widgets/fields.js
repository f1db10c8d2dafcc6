// @ts-check
// Form fields, one kind per kind of schema. Each has `read`, `write`, `say` (shows an error) and `focus`.

import { button, el, fill, freshId, h, select } from "./dom.js";
import { isObject, number, parse, pretty, same } from "../api/json.js";
import { arms, resolved, typeName } from "../api/schema.js";
import { meaningOf } from "./words.js";

const DEEPEST = 5;
const ABSENT = undefined;

/** The field of a schema. `place` is `{path, name, required, depth}`. */
export function fieldOf(schema, context, place) {
  const found = resolved(schema, context.root);
  const field = kindOf(found, context, place)(found, context, place);
  context.fields.set(place.path, field);
  if (found.default !== undefined) field.write(found.default);
  return field;
}

function kindOf(schema, context, place) {
  if (place.depth > DEEPEST) return jsonField;
  if (schema.const !== undefined || Array.isArray(schema.enum)) return choiceField;
  const several = arms(schema);
  if (several) return several.some.length === 1 ? nullableField : variantField;
  if (Array.isArray(schema.type)) return jsonField;
  if (schema.type === "boolean") return booleanField;
  if (schema.type === "integer" || schema.type === "number") return numberField;
  if (schema.type === "string") return stringField;
  if (schema.type === "array" && isObject(schema.items)) return listField;
  return schema.properties ? objectField : jsonField;
}

/** Label, control, description and space for an error. */
function framed(control, schema, context, place, more = {}) {
  const id = freshId("field");
  const said = h("p.problem", { id: `${id}-said`, hidden: true });
  control.id = id;
  control.setAttribute("aria-describedby", said.id);
  const type = el(
    "span.type",
    Array.isArray(schema.enum) ? `one of ${schema.enum.length}` : typeName(schema, context.root),
  );
  const mark = place.required ? el("span.needed", "required") : null;
  const words = meaningOf(schema);
  const element = el(
    "div.field",
    place.name ? el("div.field-head", h("label", { for: id }, place.name), type, mark) : null,
    control,
    words ? el("p.hint", words) : null,
    said,
  );
  const say = (message) => {
    said.textContent = message;
    said.hidden = message === "";
    control.toggleAttribute("aria-invalid", message !== "");
  };
  return { element, say, focus: () => control.focus(), ...more };
}

function stringField(schema, context, place) {
  const oneLine =
    schema.pattern !== undefined || schema.maxLength <= 200 || schema.format !== undefined;
  const example = schema.examples?.[0];
  const props = {
    autocomplete: "off",
    spellcheck: "false",
    placeholder: typeof example === "string" ? example : null,
  };
  const control = oneLine
    ? h("input", { type: "text", ...props })
    : h("textarea", { rows: 1, ...props });
  return framed(control, schema, context, place, {
    read: () => (control.value === "" && !place.required ? ABSENT : control.value),
    write: (value) => (control.value = value ?? ""),
  });
}

function numberField(schema, context, place) {
  const control = h("input", { type: "text", inputmode: "decimal", autocomplete: "off" });
  return framed(control, schema, context, place, {
    read: () => (control.value.trim() === "" ? ABSENT : (number(control.value) ?? ABSENT)),
    write: (value) =>
      (control.value = value === null || value === undefined ? "" : JSON.stringify(value)),
    unread: () =>
      control.value.trim() !== "" && number(control.value) === null ? "is not a number" : "",
  });
}

function booleanField(schema, context, place) {
  const options = [
    ["true", "true"],
    ["false", "false"],
  ];
  if (!place.required || schema.default === undefined) options.unshift(["", "–"]);
  const control = select(options, "", () => {});
  return framed(control, schema, context, place, {
    read: () => (control.value === "" ? ABSENT : control.value === "true"),
    write: (value) => (control.value = value === undefined || value === null ? "" : String(value)),
  });
}

function choiceField(schema, context, place) {
  const choices = schema.enum ?? [schema.const];
  const options = choices.map((value, n) => [
    String(n),
    typeof value === "string" ? value : JSON.stringify(value),
  ]);
  const first = schema.const !== undefined ? [] : [["", "–"]];
  const control = select([...first, ...options], "", () => {});
  return framed(control, schema, context, place, {
    read: () => (control.value === "" ? ABSENT : choices[Number(control.value)]),
    write: (value) => {
      const n = choices.findIndex((choice) => same(choice, value));
      control.value = n < 0 ? (first.length ? "" : "0") : String(n);
    },
  });
}

function jsonField(schema, context, place) {
  const control = h("textarea.code", { rows: 2, spellcheck: "false", placeholder: "JSON" });
  const problem = () => {
    try {
      if (control.value.trim() !== "") parse(control.value);
      return "";
    } catch (error) {
      return `is not JSON: ${error.message}`;
    }
  };
  return framed(control, schema, context, place, {
    read: () => (control.value.trim() === "" || problem() ? ABSENT : parse(control.value)),
    write: (value) => (control.value = value === undefined ? "" : pretty(value)),
    unread: problem,
  });
}

/** A value or null: an empty field means null if it is required, else it is omitted. */
function nullableField(schema, context, place) {
  const { anyOf, oneOf, default: otherwise, ...rest } = schema;
  const inner = {
    ...resolved(
      (anyOf ?? oneOf).find((arm) => arm?.type !== "null"),
      context.root,
    ),
    ...rest,
  };
  const field = kindOf(inner, context, place)(inner, context, { ...place, required: false });
  return { ...field, read: () => field.read() ?? (place.required ? null : ABSENT) };
}

/** One of several kinds of value. */
function variantField(schema, context, place) {
  const { some, nullable } = arms(schema);
  const holder = el("div.nested");
  let field = null;
  const names = some.map((arm, n) => [
    String(n),
    resolved(arm, context.root).title ?? typeName(arm, context.root),
  ]);
  const show = (n) => {
    field =
      n === ""
        ? null
        : fieldOf(some[Number(n)], context, {
            ...place,
            name: "",
            path: `${place.path}#${n}`,
            required: true,
            depth: place.depth + 1,
          });
    fill(holder, field ? field.element : null);
  };
  const control = select([...(nullable || !place.required ? [["", "–"]] : []), ...names], "", show);
  const frame = framed(control, schema, context, place);
  frame.element.append(holder);
  show(control.value);
  return {
    ...frame,
    read: () => (field ? field.read() : nullable && place.required ? null : ABSENT),
    write: (value) => {
      if (value === undefined || value === null) return;
      const n = Math.max(
        0,
        some.findIndex((arm) => looksLike(value, resolved(arm, context.root))),
      );
      control.value = String(n);
      show(String(n));
      field.write(value);
    },
  };
}

function looksLike(value, schema) {
  if (schema.const !== undefined) return same(schema.const, value);
  if (isObject(value))
    return (schema.required ?? []).every((key) => key in value) && schema.type === "object";
  if (Array.isArray(value)) return schema.type === "array";
  return schema.type === typeof value || (schema.type === "integer" && Number.isInteger(value));
}

function listField(schema, context, place) {
  const items = [];
  const holder = el("ol.items");
  const add = (value) => {
    const n = items.length;
    const field = fieldOf(schema.items, context, {
      path: `${place.path}[${n}]`,
      name: "",
      required: true,
      depth: place.depth + 1,
    });
    if (value !== undefined) field.write(value);
    items.push(field);
    const remove = button(
      "Remove",
      () => write(items.filter((one) => one !== field).map((one) => one.read())),
      { class: "small", "aria-label": `Remove item ${n + 1}` },
    );
    holder.append(el("li", field.element, remove));
    return field;
  };
  const write = (values) => {
    items.length = 0;
    fill(holder);
    for (const value of Array.isArray(values) ? values : []) add(value);
  };
  const more = button("Add an item", () => add().focus(), { class: "small" });
  const frame = framed(more, schema, context, place);
  frame.element.insertBefore(holder, more);
  return {
    ...frame,
    write,
    read: () =>
      items.length || place.required ? items.map((item) => item.read() ?? null) : ABSENT,
  };
}

function objectField(schema, context, place) {
  const required = schema.required ?? [];
  const below = Object.entries(schema.properties).map(([name, inner]) => {
    const path = place.path ? `${place.path}.${name}` : name;
    return [
      name,
      fieldOf(inner, context, {
        path,
        name,
        required: required.includes(name),
        depth: place.depth + 1,
      }),
    ];
  });
  const said = h("p.problem", { hidden: true });
  const inside = below.map(([, field]) => field.element);
  const element = place.name
    ? el(
        "fieldset.field",
        el("legend", place.name, el("span.type", "object")),
        schema.description ? el("p.hint", schema.description) : null,
        inside,
        said,
      )
    : el("div.object", inside, said);
  return {
    element,
    say: (message) => {
      said.textContent = message;
      said.hidden = message === "";
    },
    focus: () => below[0]?.[1].focus(),
    write: (value) =>
      isObject(value) &&
      below.forEach(([name, field]) => name in value && field.write(value[name])),
    read: () => {
      const entries = below
        .map(([name, field]) => [name, field.read()])
        .filter(([, value]) => value !== ABSENT);
      // An optional object is omitted if all its fields are empty.
      return entries.length || place.required ? Object.fromEntries(entries) : ABSENT;
    },
  };
}
