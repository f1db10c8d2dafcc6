import assert from "node:assert/strict";
import { test } from "node:test";

import { written } from "./fake-dom.js";

const { looksLikeMarkdown, markdown } = await import(
  "../../src/ors/inspector/page/widgets/markdown.js"
);
const shown = (text, ...attributes) => written(markdown(text).childNodes, ...attributes);

for (const [text, expected] of [
  ["one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"],
  ["# Title #", "<h3>Title</h3>"],
  ["###### Deep", "<h6>Deep</h6>"],
  ["a **b *c* d** `e*f*`", "<p>a <strong>b <em>c</em> d</strong> <code>e*f*</code></p>"],
  ["~~gone~~ \\*not\\*", "<p><del>gone</del> *not*</p>"],
  ["```py\na < b\n```\nafter", "<pre>a < b</pre><p>after</p>"],
  ["```\nnever closed", "<pre>never closed</pre>"],
  ["    indented", "<pre>indented</pre>"],
  ["> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"],
  ["- a\n- b\n  - c", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>"],
  ["a\n\n---\n\nb", "<p>a</p><hr></hr><p>b</p>"],
  ["price is $5 and $6", "<p>price is $5 and $6</p>"],
  ["sum $a_i b_i$", "<p>sum $a_i b_i$</p>"],
  ["snake_case_name", "<p>snake_case_name</p>"],
]) {
  test(`${JSON.stringify(text)} becomes ${expected}`, () => assert.equal(shown(text), expected));
}

test("an ordered list keeps the number that it begins with", () => {
  assert.equal(shown("3. a\n4. b", "start"), '<ol start="3"><li>a</li><li>b</li></ol>');
});

test("a table has a head and rows, and an escaped bar stays in its cell", () => {
  const table = shown("| a | b |\n|---|---|\n| 1 | x \\| y |");
  assert.match(table, /<thead><tr><th>a<\/th><th>b<\/th><\/tr><\/thead>/);
  assert.match(table, /<tbody><tr><td>1<\/td><td>x \| y<\/td><\/tr><\/tbody>/);
});

test("HTML stays text, and images are not loaded", () => {
  assert.equal(shown("<script>alert(1)</script>"), "<p><script>alert(1)</script></p>");
  assert.equal(markdown("<script>x</script>").childNodes[0].childNodes.length, 1); // one text
  assert.doesNotMatch(shown("![alt](https://example.org/x.png)"), /<img/);
});

test("only addresses of the web and of mail become links, which open in a tab of their own", () => {
  const link = shown("[a](https://example.org)", "href", "rel", "target");
  assert.match(link, /href="https:\/\/example.org" rel="noopener noreferrer" target="_blank"/);
  for (const url of ["javascript:alert`1`", "data:text/html,x", "//example.org", "/-/"])
    assert.doesNotMatch(shown(`[a](${url})`), /<a/);
  assert.match(shown("see https://example.org.", "href"), /href="https:\/\/example.org"/);
});

test("nothing nests without end, and long texts take no quadratic time", () => {
  const deep = shown(`${"> ".repeat(200)}end`);
  assert.equal(deep.match(/<blockquote>/g).length, 6);
  shown("*".repeat(20_000));
  shown("[".repeat(20_000));
  shown("`".repeat(20_000));
});

test("a text with marks looks like Markdown, and plain words do not", () => {
  for (const text of ["# Title", "**bold**", "- item", "`code`", "[a](b)", "```\nx\n```"])
    assert.ok(looksLikeMarkdown(text), text);
  for (const text of ["plain words", "a * b * c", "# 5", "-5 degrees"])
    assert.ok(!looksLikeMarkdown(text), text);
});
