import assert from "node:assert/strict";
import { test } from "node:test";

import { decodeAll, Decoder } from "../../src/ors/inspector/page/api/events.js";

const STREAM = "event: task_id\ndata: a-1\n\n: ping\n\nevent: end\nid: 7\ndata: {\ndata: }\n\n";
const EXPECTED = [
  ["task_id", "a-1"],
  [":", ""],
  ["end", "{\n}"],
];
const named = (events) => events.map(({ name, data }) => [name, data]);

test("events have a name and joined data, and comments the name of a colon", () => {
  assert.deepEqual(named(decodeAll(STREAM)), EXPECTED);
  assert.deepEqual(decodeAll(STREAM)[2].more, { id: "7" });
  assert.equal(decodeAll(STREAM)[0].raw, "event: task_id\ndata: a-1");
});

for (const end of ["\n", "\r\n", "\r"]) {
  test(`a stream may be cut anywhere, with lines that end in ${JSON.stringify(end)}`, () => {
    const text = `${STREAM.replaceAll("\n", end)}: more`;
    for (let at = 0; at <= text.length; at++) {
      const decoder = new Decoder();
      const found = [...decoder.feed(text.slice(0, at)), ...decoder.feed(text.slice(at))];
      assert.deepEqual(named(found), EXPECTED, `cut at ${at}`);
    }
  });
}

test("an event without a name is a message, and one that is not complete waits", () => {
  const decoder = new Decoder();
  assert.deepEqual(decoder.feed("data:x"), []);
  assert.deepEqual(named(decoder.feed("\n\n")), [["message", "x"]]);
});
