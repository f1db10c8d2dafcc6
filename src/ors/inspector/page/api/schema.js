// @ts-check
// JSON Schemas of tools: describes them as text, and validates values.

import { isObject, isRaw, same } from "./json.js";

const DEEPEST = 12;

/** Resolves the reference of a schema and unwraps an `allOf` with one entry. */
export function resolved(schema, root) {
  let found = schema === true || schema === undefined ? {} : schema;
  for (let depth = 0; depth < DEEPEST && isObject(found); depth++) {
    if (typeof found.$ref === "string") {
      const { $ref, ...rest } = found;
      found = { ...at(root, $ref), ...rest };
    } else if (Array.isArray(found.allOf) && found.allOf.length === 1) {
      const { allOf, ...rest } = found;
      found = { ...allOf[0], ...rest };
    } else {
      break;
    }
  }
  return isObject(found) ? found : {};
}

function at(root, pointer) {
  let place = root;
  for (const step of pointer.replace(/^#\/?/, "").split("/")) {
    place = place?.[step.replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return isObject(place) ? place : {};
}

/** The alternatives of a schema without null, and whether null is allowed. */
export function arms(schema) {
  const all = schema.anyOf ?? schema.oneOf;
  if (!Array.isArray(all)) return null;
  return {
    some: all.filter((arm) => arm?.type !== "null"),
    nullable: all.some((arm) => arm?.type === "null"),
  };
}

/** Short name of a type: `list of integer`, `"up" | "down"`. */
export function typeName(schema, root, depth = 0) {
  const found = resolved(schema, root);
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (Array.isArray(found.enum))
    return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  const several = arms(found);
  if (several && depth < 4) {
    const names = several.some.map((arm) => typeName(arm, root, depth + 1));
    return [...names, ...(several.nullable ? ["null"] : [])].join(" | ");
  }
  if (Array.isArray(found.type)) return found.type.join(" | ");
  if (found.type === "array")
    return depth < 4 && found.items ? `list of ${typeName(found.items, root, depth + 1)}` : "list";
  if (found.type === "object" || found.properties)
    return found.title && !found.properties ? found.title : "object";
  return found.type ?? "any";
}

/** Describes the constraints of a schema. */
export function constraints(schema) {
  const words = [];
  const add = (key, word) => schema[key] !== undefined && words.push(word(schema[key]));
  add("minimum", (v) => `≥ ${v}`);
  add("exclusiveMinimum", (v) => `> ${v}`);
  add("maximum", (v) => `≤ ${v}`);
  add("exclusiveMaximum", (v) => `< ${v}`);
  add("multipleOf", (v) => `multiple of ${v}`);
  add("minLength", (v) => `at least ${v} characters`);
  add("maxLength", (v) => `at most ${v} characters`);
  add("pattern", (v) => `matches ${v}`);
  add("format", (v) => v);
  add("minItems", (v) => `at least ${v} items`);
  add("maxItems", (v) => `at most ${v} items`);
  return words;
}

/** Validates a value; returns `[{path, message}]`, empty if it fits. */
export function problems(value, schema, root = schema, path = "", depth = 0) {
  const found = resolved(schema, root);
  if (depth > 60 || isRaw(value)) return [];
  const say = (message) => [{ path, message }];
  if (found.const !== undefined && !same(found.const, value))
    return say(`must be ${JSON.stringify(found.const)}`);
  if (Array.isArray(found.enum) && !found.enum.some((one) => same(one, value)))
    return say("is not one of the choices");
  const several = found.anyOf ?? found.oneOf;
  if (Array.isArray(several)) {
    const tries = several.map((arm) => problems(value, arm, root, path, depth + 1));
    if (!tries.some((found) => found.length === 0))
      return tries.sort((a, b) => a.length - b.length)[0];
  }
  if (found.type !== undefined && ![found.type].flat().some((type) => isOfType(value, type))) {
    return say(`must be ${[found.type].flat().map(article).join(" or ")}`);
  }
  if (typeof value === "string") return stringProblems(value, found, say);
  if (typeof value === "number") return numberProblems(value, found, say);
  if (Array.isArray(value)) return arrayProblems(value, found, root, path, depth, say);
  return isObject(value) ? objectProblems(value, found, root, path, depth) : [];
}

const article = (type) =>
  /^[aeiou]/.test(type) ? `an ${type}` : type === "null" ? "null" : `a ${type}`;

function isOfType(value, type) {
  if (type === "integer") return Number.isInteger(value);
  if (type === "number") return typeof value === "number";
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  if (type === "null") return value === null;
  return typeof value === type;
}

function stringProblems(value, schema, say) {
  const length = [...value].length;
  if (length < (schema.minLength ?? 0))
    return say(length ? `needs ${schema.minLength} characters` : "is required");
  if (length > (schema.maxLength ?? Infinity))
    return say(`may have ${schema.maxLength} characters, has ${length}`);
  return schema.pattern !== undefined && !matches(value, schema.pattern)
    ? say(`must match ${schema.pattern}`)
    : [];
}

function matches(value, pattern) {
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true; // another regex dialect: the server decides
  }
}

function numberProblems(value, schema, say) {
  if (value < schema.minimum) return say(`must be at least ${schema.minimum}`);
  if (value > schema.maximum) return say(`must be at most ${schema.maximum}`);
  if (value <= schema.exclusiveMinimum) return say(`must be over ${schema.exclusiveMinimum}`);
  if (value >= schema.exclusiveMaximum) return say(`must be under ${schema.exclusiveMaximum}`);
  const steps = value / schema.multipleOf;
  return Math.abs(steps - Math.round(steps)) > 1e-9
    ? say(`must be a multiple of ${schema.multipleOf}`)
    : [];
}

function arrayProblems(value, schema, root, path, depth, say) {
  if (value.length < (schema.minItems ?? 0)) return say(`needs at least ${schema.minItems} items`);
  if (value.length > (schema.maxItems ?? Infinity))
    return say(`may have at most ${schema.maxItems} items`);
  if (schema.uniqueItems && new Set(value.map((one) => JSON.stringify(one))).size < value.length)
    return say("has a duplicate item");
  return value.flatMap((item, n) =>
    problems(item, schema.prefixItems?.[n] ?? schema.items, root, `${path}[${n}]`, depth + 1),
  );
}

function objectProblems(value, schema, root, path, depth) {
  const below = (key) => (path ? `${path}.${key}` : key);
  const known = schema.properties ?? {};
  const missing = (schema.required ?? []).filter((key) => !(key in value));
  return [
    ...missing.map((key) => ({ path: below(key), message: "is required" })),
    ...Object.keys(value).flatMap((key) => {
      if (key in known) return problems(value[key], known[key], root, below(key), depth + 1);
      if (schema.additionalProperties === false)
        return [{ path: below(key), message: "is unknown" }];
      return isObject(schema.additionalProperties)
        ? problems(value[key], schema.additionalProperties, root, below(key), depth + 1)
        : [];
    }),
  ];
}
