import assert from "node:assert/strict";
import { test } from "node:test";

import {
  arms,
  constraints,
  problems,
  resolved,
  typeName,
} from "../../src/ors/inspector/page/api/schema.js";

test("references are resolved, and what stands beside them wins", () => {
  const root = { $defs: { "a/b": { type: "string", title: "Old" } } };
  const schema = { $ref: "#/$defs/a~1b", title: "New" };
  assert.deepEqual(resolved(schema, root), { type: "string", title: "New" });
  assert.deepEqual(resolved({ allOf: [{ type: "integer" }], minimum: 1 }, root), {
    type: "integer",
    minimum: 1,
  });
  assert.deepEqual(resolved({ $ref: "#/$defs/nothing" }, root), {});
  assert.deepEqual(resolved(true, root), {});
});

test("a reference to itself ends", () => {
  const root = { $defs: { self: { $ref: "#/$defs/self" } } };
  assert.ok(resolved({ $ref: "#/$defs/self" }, root));
  assert.deepEqual(problems(1, { $ref: "#/$defs/self" }, root), []);
});

for (const [schema, name] of [
  [{ type: "string" }, "string"],
  [{ type: "array", items: { type: "integer" } }, "list of integer"],
  [{ enum: ["up", "down"] }, '"up" | "down"'],
  [{ const: 3 }, "3"],
  [{ anyOf: [{ type: "string" }, { type: "null" }] }, "string | null"],
  [{ type: ["integer", "null"] }, "integer | null"],
  [{ properties: {} }, "object"],
  [{}, "any"],
]) {
  test(`${JSON.stringify(schema)} is called ${name}`, () => {
    assert.equal(typeName(schema, schema), name);
  });
}

for (const [value, schema, message] of [
  ["a", { type: "integer" }, "must be an integer"],
  [1.5, { type: "integer" }, "must be an integer"],
  [true, { type: "number" }, "must be a number"],
  ["", { type: "string", minLength: 1 }, "is required"],
  ["abc", { type: "string", maxLength: 2 }, "may have 2 characters, has 3"],
  ["😀😀", { type: "string", maxLength: 1 }, "may have 1 characters, has 2"],
  ["abc", { type: "string", pattern: "^b" }, "must match ^b"],
  [0, { type: "integer", minimum: 1 }, "must be at least 1"],
  [1, { type: "integer", exclusiveMaximum: 1 }, "must be under 1"],
  [0.25, { type: "number", multipleOf: 0.1 }, "must be a multiple of 0.1"],
  [[1, 1], { type: "array", uniqueItems: true }, "has a duplicate item"],
  ["left", { enum: ["up", "down"] }, "is not one of the choices"],
  [2, { const: 1 }, "must be 1"],
]) {
  test(`${JSON.stringify(value)} does not fit ${JSON.stringify(schema)}`, () => {
    assert.deepEqual(problems(value, schema), [{ path: "", message }]);
  });
}

for (const [value, schema] of [
  [0.3, { type: "number", multipleOf: 0.1 }],
  [1, { type: "integer", minimum: 1, maximum: 1 }],
  ["ab", { type: "string", minLength: 2, maxLength: 2 }],
  [null, { anyOf: [{ type: "string" }, { type: "null" }] }],
  ["x", { type: "string", pattern: "(?P<python>x)" }], // another dialect: the server decides
  [{ a: 1 }, true],
]) {
  test(`${JSON.stringify(value)} fits ${JSON.stringify(schema)}`, () => {
    assert.deepEqual(problems(value, schema), []);
  });
}

test("problems inside of objects and lists name their path", () => {
  const schema = {
    type: "object",
    properties: { moves: { type: "array", items: { $ref: "#/$defs/move" } } },
    required: ["moves", "name"],
    $defs: { move: { type: "object", properties: { x: { type: "integer" } } } },
  };
  const found = problems({ moves: [{ x: 1 }, { x: "2" }] }, schema);
  assert.deepEqual(found.map(({ path }) => path).sort(), ["moves[1].x", "name"]);
});

test("constraints are told in words, and arms without null", () => {
  assert.deepEqual(constraints({ minimum: 1, maxItems: 3 }), ["≥ 1", "at most 3 items"]);
  assert.deepEqual(arms({ anyOf: [{ type: "string" }, { type: "null" }] }), {
    some: [{ type: "string" }],
    nullable: true,
  });
  assert.equal(arms({ type: "string" }), null);
});
