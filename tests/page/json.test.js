import assert from "node:assert/strict";
import { test } from "node:test";

import {
  isObject,
  isRaw,
  number,
  parse,
  pretty,
  same,
  short,
} from "../../src/ors/inspector/page/api/json.js";

const exact = JSON.rawJSON !== undefined; // Node 22 and later, like the browsers that have it

test("what JSON.parse reads is read alike", () => {
  for (const text of ['{"a":[1,2.5,-3e10,"x",null,true]}', "[]", '"é"', "9007199254740991"])
    assert.deepEqual(parse(text), JSON.parse(text));
  assert.throws(() => parse("{"), SyntaxError);
});

test("integers that JavaScript cannot represent keep their text", { skip: !exact }, () => {
  const text = '{"id":12345678901234567890,"small":1,"fraction":0.12345678901234567}';
  assert.equal(JSON.stringify(parse(text)).includes("12345678901234567890"), true);
  assert.equal(isRaw(parse(text).id), true);
  assert.equal(isObject(parse(text).id), false);
  assert.equal(JSON.stringify(number("12345678901234567890")), "12345678901234567890");
});

for (const [text, value] of [
  ["1", 1],
  [" -2.5 ", -2.5],
  ["1e3", 1000],
  ["", null],
  ["01", null],
  ["1.", null],
  ["0x10", null],
  ["Infinity", null],
  ["1 2", null],
]) {
  test(`the typed number ${JSON.stringify(text)} is ${value}`, () => {
    assert.equal(number(text), value);
  });
}

test("values are compared by their JSON, and told in one line", () => {
  assert.ok(same({ a: [1] }, { a: [1] }));
  assert.ok(!same({ a: 1 }, { a: 2 }));
  assert.equal(isObject([]), false);
  assert.equal(isObject(null), false);
  assert.equal(pretty({ a: 1 }), '{\n  "a": 1\n}');
  assert.equal(short({ a: "b\n c" }), '{"a":"b\\n c"}');
  assert.equal(short("a\n  b", 10), "a b");
  assert.equal(short("x".repeat(50), 10), `${"x".repeat(9)}…`);
});
