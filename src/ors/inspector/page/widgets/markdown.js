// @ts-check
// Markdown as elements. HTML stays text, images are not loaded, and nothing nests without end.

import { el, h } from "./dom.js";

const DEEPEST = 6;
const MOST_COLUMNS = 40;
const SIGNS = [
  /^ {0,3}#{1,6} +\p{L}{2}/mu,
  /^ {0,3}(```|~~~)/m,
  /\*\*\S[^*\n]*\*\*/,
  /\[[^[\]\n]{1,200}\]\(\S{1,500}\)/,
  /`[^`\n]+`/,
  /^ {0,3}\|? *:?-{3,}:? *\|/m,
  /^ {0,3}([-*+]|\d{1,3}[.)]) +\p{L}/mu,
];
const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(\S.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?: +(?=\S)|$)/;
const CODE = /^(?: {4}|\t)/;
const DIVIDER = /^ {0,3}\|? *:?-+:? *(?:\| *:?-+:? *)*\|?\s*$/;

/** Whether a text seems to be written in Markdown. */
export const looksLikeMarkdown = (text) => SIGNS.some((sign) => sign.test(text));

/** A text as elements. */
export const markdown = (text) =>
  el("div.markdown", blocksOf(text.replace(/\r\n?/g, "\n").split("\n"), 0));

// ── Blocks ───────────────────────────────────────────────────────────────────────────────────────

function blocksOf(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [node, next] = blockAt(lines, at, depth);
    found.push(node);
    at = next;
  }
  return found;
}

/** The block that begins at a line, and the line after it. */
function blockAt(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return fenced(lines, at);
  if (CODE.test(line)) return indented(lines, at);
  const heading = HEADING.exec(line);
  // The page has headings of its own above.
  if (heading)
    return [
      el(`h${Math.min(6, heading[1].length + 2)}`, inline(withoutHashes(heading[2]))),
      at + 1,
    ];
  if (RULE.test(line)) return [h("hr"), at + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, at, depth);
  if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "") && lines[at + 1].includes("-"))
    return table(lines, at);
  return paragraph(lines, at);
}

const begins = (line) =>
  line.trim() === "" ||
  FENCE.test(line) ||
  HEADING.test(line) ||
  RULE.test(line) ||
  QUOTE.test(line) ||
  ITEM.test(line);

/** The first line from `at` on for which `over` holds. */
function until(lines, at, over) {
  while (at < lines.length && !over(lines[at])) at += 1;
  return at;
}

function withoutHashes(text) {
  const words = text.trimEnd();
  let end = words.length;
  while (words[end - 1] === "#") end -= 1;
  return end < words.length && /\s/.test(words[end - 1] ?? "")
    ? words.slice(0, end).trimEnd()
    : words;
}

function fenced(lines, at) {
  const [, mark] = FENCE.exec(lines[at]);
  const end = until(
    lines,
    at + 1,
    (line) => line.trim().startsWith(mark) && line.trim() === mark[0].repeat(line.trim().length),
  );
  return [el("pre.text", lines.slice(at + 1, end).join("\n")), end + 1];
}

function indented(lines, at) {
  let end = until(lines, at, (line) => line.trim() !== "" && !CODE.test(line));
  const next = end;
  while (lines[end - 1].trim() === "") end -= 1;
  return [
    el(
      "pre.text",
      lines
        .slice(at, end)
        .map((line) => line.replace(CODE, ""))
        .join("\n"),
    ),
    next,
  ];
}

function quote(lines, at, depth) {
  const end = until(lines, at, (line) => !QUOTE.test(line));
  return [
    el(
      "blockquote",
      blocksOf(
        lines.slice(at, end).map((line) => line.replace(QUOTE, "")),
        depth + 1,
      ),
    ),
    end,
  ];
}

function list(lines, at, depth) {
  const [, , first] = ITEM.exec(lines[at]);
  const kind = first.slice(-1);
  const items = [];
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[2].slice(-1) !== kind || RULE.test(lines[at])) break;
    const wide = Math.max(2, found[0].length);
    const end = itemEnd(lines, at + 1, found[1].length + 2);
    const inside = [
      lines[at].slice(found[0].length),
      ...lines
        .slice(at + 1, end)
        .map((line) => line.slice(Math.min(wide, line.length - line.trimStart().length))),
    ];
    items.push(el("li", item(inside, depth)));
    at = end;
  }
  const start = parseInt(first, 10);
  return [
    Number.isNaN(start) ? el("ul", items) : h("ol", { start: start === 1 ? null : start }, items),
    at,
  ];
}

/** The line after an item: indented lines belong to it, and text that follows without an empty line. */
function itemEnd(lines, at, least) {
  const deep = (line) => line.length - line.trimStart().length >= least;
  let end = at;
  while (end < lines.length) {
    const line = lines[end];
    if (line.trim() === "") {
      const next = until(lines, end, (one) => one.trim() !== "");
      if (next === lines.length || !(deep(lines[next]) || ITEM.test(lines[next]))) return next;
      if (!deep(lines[next])) return next;
      end = next;
    } else if (deep(line) || !begins(line)) end += 1;
    else break;
  }
  return end;
}

function item(lines, depth) {
  const inside = blocksOf(lines, depth + 1);
  const [only] = inside;
  return only?.tagName === "P" ? [...only.childNodes, ...inside.slice(1)] : inside;
}

function table(lines, at) {
  const end = until(lines, at + 2, (line) => !line.includes("|"));
  const row = (line, kind, props) =>
    el(
      "tr",
      cells(line).map((cell) => h(kind, props, inline(cell))),
    );
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  return [
    el(
      "div.scroll",
      el("table", el("thead", row(lines[at], "th", { scope: "col" })), el("tbody", body)),
    ),
    end,
  ];
}

const cells = (line) =>
  line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "")
    .split(/(?<!\\)\|/, MOST_COLUMNS)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));

function paragraph(lines, at) {
  const end = until(lines, at + 1, begins);
  return [el("p", inline(lines.slice(at, end).join("\n"))), end];
}

// ── Inside a line ────────────────────────────────────────────────────────────────────────────────

// Every part has a bounded length and cannot contain its own mark, so that the time is bounded too.
/** @type {[string, RegExp][]} */
const PARTS = [
  ["escaped", /\\([\\`*_{}[\]()#+\-.!|<>~$])/],
  ["code", /(?<!`)(?<ticks>`{1,5})(?!`)([^\n]{1,500}?)(?<!`)\k<ticks>(?!`)/],
  ["math", /\$\$[^$]{1,1000}\$\$|\$(?=\S)[^$\n]{1,300}(?<=\S)\$(?!\d)/],
  ["image", /!\[([^[\]\n]{0,300})\]\(([^()\s]{1,2000})[^()\n]{0,300}\)/],
  ["link", /\[([^[\]\n]{1,500})\]\(([^()\s]{1,2000})(?:\s+"[^"\n]{0,300}")?\)/],
  ["address", /<?(https?:\/\/[^\s<>()[\]]{1,2000})>?/],
  [
    "strong",
    /\*\*(?=\S)((?:[^*]|\*(?!\*)){1,2000}?)(?<=\S)\*\*|(?<![\p{L}\p{N}_])__(?=\S)([^_]{1,1000})(?<=\S)__(?![\p{L}\p{N}_])/u,
  ],
  [
    "em",
    /(?<![*\p{L}\p{N}])\*(?=[^\s*])([^*\n]{1,1000})(?<=\S)\*(?![*\p{L}\p{N}])|(?<![\p{L}\p{N}_])_(?=[^\s_])([^_\n]{1,1000})(?<=\S)_(?![\p{L}\p{N}_])/u,
  ],
  ["del", /~~(?=\S)([^~\n]{1,1000})(?<=\S)~~/],
];
const PART = new RegExp(PARTS.map(([name, { source }]) => `(?<${name}>${source})`).join("|"), "gu");
const WHOLE = Object.fromEntries(
  PARTS.map(([name, { source }]) => [name, new RegExp(`^(?:${source})$`, "u")]),
);

function inline(text, depth = 0) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(PART)) {
    const [kind] = PARTS.find(([name]) => match.groups[name] !== undefined);
    found.push(text.slice(at, match.index), part(kind, match[0], depth));
    at = match.index + match[0].length;
  }
  found.push(text.slice(at));
  return found.filter((one) => one !== "");
}

function part(kind, whole, depth) {
  const [, first, second] = WHOLE[kind].exec(whole) ?? [];
  if (kind === "escaped") return first;
  if (kind === "math") return whole;
  if (kind === "code") return el("code", second.replace(/^ (.+) $/, "$1"));
  if (kind === "image")
    return el("span.muted", "[image: ", first || "without a text", "] ", link(second, second));
  if (kind === "link")
    return link(second, depth < DEEPEST ? inline(first, depth + 1) : first) ?? whole;
  if (kind === "address") return address(whole, first);
  return h(kind, null, depth < DEEPEST ? inline(first ?? second, depth + 1) : (first ?? second));
}

function address(whole, url) {
  if (whole.startsWith("<")) return link(url, url);
  const bare = url.replace(/[.,;:!?'"*_~]{1,20}$/, "");
  return [link(bare, bare), whole.slice(bare.length)];
}

/** A link to another site, which opens in a tab of its own; null if it leads anywhere else. */
function link(url, words) {
  if (!/^(https?:\/\/|mailto:)/i.test(url) || !URL.canParse(url)) return null;
  return h("a", { href: url, rel: "noopener noreferrer", target: "_blank", title: url }, words);
}
