// @ts-check
// The view of environments: descriptions, splits, and tools with their schemas.

import { descriptionOf, environments, size } from "../api/catalogue.js";
import { card, el, fact, facts, failure, h, loading } from "../widgets/dom.js";
import { short } from "../api/json.js";
import { arms, resolved, typeName } from "../api/schema.js";
import { cellsOf, headRow, tableOf } from "../widgets/table.js";
import { address } from "../widgets/recorded.js";
import { bytes, meaningOf, plural } from "../widgets/words.js";

const DEEPEST = 5;

export async function show(main, [chosen]) {
  main.append(el("h1", "Environments"), loading("environments"));
  const all = await environments();
  main.lastChild.remove();
  const named = all.filter((one) => !chosen || one.name === chosen);
  if (chosen && named.length === 0)
    main.append(failure(new Error(`There is no environment ${chosen}.`)));
  if (!chosen) main.append(el("p.muted", plural(all.length, "environment")));
  main.append(...named.map((one) => cardOf(one, Boolean(chosen) || all.length === 1)));
}

function cardOf(one, open) {
  const [summary, ...rest] = one.description.split("\n\n");
  const made = card(
    one.name,
    "",
    summary ? el("p.lead", summary) : null,
    rest.map((paragraph) => el("p", paragraph)),
    description(one.name),
    meaning(one),
    el("h3", "Splits"),
    el(
      "ul.splits",
      one.splits.map((split) => splitItem(one.name, split)),
    ),
    el("h3", "Tools"),
    one.tools.map((tool) => toolItem(tool, false, open)),
    one.task_tools.map((tool) => toolItem(tool, true, open)),
    one.tools.length + one.task_tools.length ? null : el("p.muted", "Each task has its own tools."),
  );
  const link = h("a", { href: address(["environments", one.name]) }, one.name);
  made.firstElementChild.replaceChildren(link);
  return made;
}

/** Its version, package, needs and parameters, once the server has told them. */
function description(name) {
  const list = facts();
  const shown = ([title, text]) => (text ? fact(title, text) : []);
  descriptionOf(name)
    .then((told) => told && list.append(...about(told).flatMap(shown)))
    .catch(() => {}); // the page says that the server is away
  return list;
}

/** @param {import("../api/types.js").Description} told */
function about({ version, hash, license, authors, needs, required_secrets: secrets, parameters }) {
  const memory = needs.memory ? `${bytes(needs.memory)}, ` : "";
  const network = needs.network ? "with network" : "no network";
  return [
    ["Version", version],
    ["Hash", hash && h("code", { title: hash }, hash.slice(0, 12))],
    ["Licence", license],
    ["Authors", authors.join(", ")],
    ["Secrets", secrets.join(", ")],
    ["Sandbox", needs.sandbox ? memory + network : ""],
    ...Object.entries(parameters?.values ?? {}).map(([key, value]) => [key, JSON.stringify(value)]),
  ];
}

/** What the environment declares of its rewards. */
function meaning({ reward_range: range, reward_components: components }) {
  const sentences = Object.entries(components ?? {});
  if (!range && !sentences.length) return null;
  const bounds = range ? ` from ${range[0]} to ${range[1]}` : "";
  return [
    el("h3", `Rewards${bounds}`),
    facts(sentences.map(([name, sentence]) => fact(name, sentence))),
  ];
}

function splitItem(environment, split) {
  const counted = el("span.count", "…");
  size(environment, split.name).then(
    (n) => (counted.textContent = n === null ? "not counted" : plural(n, "task")),
    () => (counted.textContent = "?"),
  );
  const play = `${address(["play", environment, split.name, 0])}?open`;
  return el(
    "li",
    h(
      "a.split",
      { href: address(["tasks", environment, split.name]) },
      el("b", split.name),
      split.type && split.type !== split.name ? el("span.tag", split.type) : null,
      counted,
    ),
    h("a.play", { href: play, "aria-label": `Play the first task of ${split.name}` }, "Play"),
  );
}

const TERMINAL = "Takes the agent's last message. Agents do not see it as a tool.";

function toolItem(tool, special, open) {
  const schema = tool.input_schema;
  const names = Object.keys(schema?.properties ?? {});
  const tag = (word, title = null) => h("span.tag.special", { title }, word);
  return h(
    "details.tool",
    { open },
    el(
      "summary",
      el("code.tool-name", tool.name),
      el("code.muted", `(${names.join(", ")})`),
      special ? tag("task-specific") : null,
      tool.terminal ? tag("terminal", TERMINAL) : null,
      el("span.muted.brief", short(tool.description ?? "", 100)),
    ),
    tool.description ? el("p.described", tool.description) : null,
    names.length
      ? tableOf("schema", el("thead", headRow(COLUMNS)), el("tbody", rows(schema, schema)))
      : el("p.muted", "Takes no input."),
  );
}

/** @type {import("../widgets/table.js").Column<any>[]} */
const COLUMNS = [
  { title: "Parameter", cell: parameter },
  { title: "Type", cell: ({ type }) => el("span.type", type) },
  { title: "Default", cell: ({ schema }) => defaultOf(schema) },
  { title: "Meaning", class: "meaning", cell: ({ schema }) => meaningOf(schema) },
];

function parameter({ name, required }) {
  return [el("code", name), required ? el("span.needed", "required") : null];
}

const defaultOf = ({ default: value }) =>
  value === undefined ? null : el("code", JSON.stringify(value));

function rows(schema, root, depth = 0, seen = []) {
  return Object.entries(schema.properties ?? {}).flatMap(([name, raw]) => {
    const found = resolved(raw, root);
    const below = nested(found, root);
    const more =
      below && depth < DEEPEST && !seen.includes(raw.$ref)
        ? rows(below, root, depth + 1, [...seen, raw.$ref ?? below])
        : [];
    const required = schema.required?.includes(name);
    const given = { name, schema: found, required, type: typeName(found, root) };
    const row = h("tr", { class: depth ? "inner" : null }, cellsOf(COLUMNS, given));
    row.style.setProperty("--depth", String(depth));
    return [row, ...more];
  });
}

/** The object schema inside a schema: itself, its items, or one of its alternatives; else null. */
function nested(schema, root) {
  if (schema.properties) return schema;
  if (schema.items) return nested(resolved(schema.items, root), root);
  const some = arms(schema)?.some.map((arm) => resolved(arm, root)) ?? [];
  return some.find((arm) => arm.properties) ?? null;
}
