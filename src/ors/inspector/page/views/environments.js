// @ts-check
// The view of environments: descriptions, splits, and tools with their schemas.

import { description, environments, size } from "../api/catalogue.js";
import { fact, failure, h, loading, reachable } from "../widgets/dom.js";
import { short } from "../api/json.js";
import { arms, constraints, resolved, typeName } from "../api/schema.js";
import { bytes, count, plural } from "../widgets/words.js";

export async function show(main, [chosen]) {
  main.append(h("h1", null, "Environments"), loading("environments"));
  const all = await environments();
  main.lastChild.remove();
  const named = all.filter((one) => !chosen || one.name === chosen);
  if (chosen && named.length === 0)
    main.append(failure(new Error(`There is no environment ${chosen}.`)));
  if (!chosen) main.append(h("p", { class: "muted" }, plural(all.length, "environment")));
  main.append(...named.map((one) => card(one, Boolean(chosen) || all.length === 1)));
}

function card(one, open) {
  const link = `#/environments/${encodeURIComponent(one.name)}`;
  const tools = [
    ...one.tools.map((tool) => [tool, false]),
    ...one.task_tools.map((tool) => [tool, true]),
  ];
  const [summary, ...rest] = one.description.split("\n\n");
  return h(
    "section",
    { class: "card", "aria-label": one.name },
    h("h2", null, h("a", { href: link }, one.name)),
    summary ? h("p", { class: "lead" }, summary) : null,
    rest.map((paragraph) => h("p", null, paragraph)),
    facts(one.name),
    meaning(one),
    h("h3", null, "Splits"),
    h(
      "ul",
      { class: "splits" },
      one.splits.map((split) => splitItem(one.name, split)),
    ),
    h("h3", null, "Tools"),
    tools.length
      ? tools.map(([tool, special]) => toolItem(tool, special, open))
      : h("p", { class: "muted" }, "Each task has its own tools."),
  );
}

/** Its version, package, needs and parameters, once the server has told them. */
function facts(name) {
  const list = h("dl", { class: "facts" });
  const shown = ([title, text]) => (text ? fact(title, text) : []);
  description(name)
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
    h("h3", null, `Rewards${bounds}`),
    h(
      "dl",
      { class: "facts" },
      sentences.map(([name, sentence]) => fact(name, sentence)),
    ),
  ];
}

function splitItem(environment, split) {
  const counted = h("span", { class: "count" }, "…");
  size(environment, split.name)
    .then(
      (n) =>
        (counted.textContent =
          n === null ? "not counted" : `${count(n)} ${n === 1 ? "task" : "tasks"}`),
    )
    .catch(() => (counted.textContent = "?"));
  const at = `${encodeURIComponent(environment)}/${encodeURIComponent(split.name)}`;
  return h(
    "li",
    null,
    h(
      "a",
      { class: "split", href: `#/tasks/${at}` },
      h("b", null, split.name),
      split.type && split.type !== split.name ? h("span", { class: "tag" }, split.type) : null,
      counted,
    ),
    h(
      "a",
      {
        class: "play",
        href: `#/play/${at}/0?open`,
        "aria-label": `Play the first task of ${split.name}`,
      },
      "Play",
    ),
  );
}

export function toolItem(tool, special, open) {
  const schema = tool.input_schema;
  const names = Object.keys(schema?.properties ?? {});
  return h(
    "details",
    { class: "tool", open },
    h(
      "summary",
      null,
      h("code", { class: "tool-name" }, tool.name),
      h("code", { class: "muted" }, `(${names.join(", ")})`),
      special ? h("span", { class: "tag special" }, "task-specific") : null,
      tool.terminal
        ? h(
            "span",
            {
              class: "tag special",
              title: "Takes the agent's last message. Agents do not see it as a tool.",
            },
            "terminal",
          )
        : null,
      h("span", { class: "muted brief" }, short(tool.description ?? "", 100)),
    ),
    tool.description ? h("p", { class: "described" }, tool.description) : null,
    names.length ? schemaTable(schema) : h("p", { class: "muted" }, "Takes no input."),
  );
}

function schemaTable(schema) {
  const head = ["Parameter", "Type", "Default", "Meaning"].map((title) =>
    h("th", { scope: "col" }, title),
  );
  return reachable(
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "schema" },
        h("thead", null, h("tr", null, head)),
        h("tbody", null, rows(schema, schema, 0)),
      ),
    ),
  );
}

function rows(schema, root, depth, seen = []) {
  const required = schema.required ?? [];
  return Object.entries(schema.properties ?? {}).flatMap(([name, raw]) => {
    const found = resolved(raw, root);
    const below = nested(found, root);
    const more =
      below && depth < 5 && !seen.includes(raw.$ref)
        ? rows(below, root, depth + 1, [...seen, raw.$ref ?? below])
        : [];
    return [row(name, found, root, required.includes(name), depth), ...more];
  });
}

/** The object schema inside a schema: itself, its items, or one of its alternatives; else null. */
function nested(schema, root) {
  if (schema.properties) return schema;
  if (schema.items) return nested(resolved(schema.items, root), root);
  const some = arms(schema)?.some.map((arm) => resolved(arm, root)) ?? [];
  return some.find((arm) => arm.properties) ?? null;
}

function row(name, schema, root, required, depth) {
  const words = [schema.description, constraints(schema).join(", ")].filter(Boolean).join(" · ");
  return h(
    "tr",
    null,
    h(
      "td",
      { class: `depth-${Math.min(depth, 5)}` },
      h("code", null, name),
      required ? h("span", { class: "needed" }, "required") : null,
    ),
    h("td", null, h("span", { class: "type" }, typeName(schema, root))),
    h(
      "td",
      null,
      schema.default === undefined ? "" : h("code", null, JSON.stringify(schema.default)),
    ),
    h("td", { class: "meaning" }, words),
  );
}
