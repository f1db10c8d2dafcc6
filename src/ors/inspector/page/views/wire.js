// @ts-check
// The wire view: each request of this page and its raw answer, with times.

import { el, fill, h, reachable } from "../widgets/dom.js";
import { text } from "../widgets/show.js";
import { cellsOf, headRow, tableOf } from "../widgets/table.js";
import { bytes, clock, count, seconds } from "../widgets/words.js";
import { byId, changes, exchanges } from "../api/wire-log.js";

const MOST_PARTS = 300;
const FOREIGN = "From a watched session, as reported by the server. Its events have no times.";

/** #/wire/NUMBER */
export async function show(main, [id]) {
  main.append(el("h1", "Wire"));
  if (id === undefined && exchanges.length === 0) {
    main.append(
      el(
        "p.note",
        "Nothing has been sent yet. This page lists its requests here, with their raw answers.",
      ),
    );
    return null;
  }
  const list = h("tbody");
  const detail = reachable(h("section.card.side.wire-detail", { "aria-label": "Exchange" }));
  const onlyCalls = h("input", { type: "checkbox", on: { change: () => drawList() } });
  const chosen = id === undefined ? exchanges.at(-1) : byId(Number(id));
  const drawList = () => fill(list, rows(onlyCalls.checked, chosen));
  const gone = el("p.muted", "This exchange is no longer in the log.");
  const drawDetail = () => fill(detail, chosen ? detailOf(chosen) : gone);
  main.append(
    el(
      "div.columns.both",
      h(
        "section.card",
        { "aria-label": "Requests" },
        el("div.bar", el("label.check", onlyCalls, "Calls only")),
        tableOf("exchanges", el("thead", headRow(COLUMNS)), list),
      ),
      detail,
    ),
  );
  drawList();
  drawDetail();
  const onChange = (/** @type {any} */ event) => {
    drawList();
    if (event.detail === chosen) drawDetail();
  };
  changes.addEventListener("change", onChange);
  return () => changes.removeEventListener("change", onChange);
}

/** @type {import("../widgets/table.js").Column<any>[]} */
const COLUMNS = [
  { title: "Time", class: "muted num", cell: ({ at }) => clock(at) },
  { title: "Request", cell: linkOf },
  { title: "Status", cell: statusOf },
  {
    title: "Took",
    class: "num",
    cell: (one) => (one.seconds === null ? "…" : seconds(one.seconds)),
  },
  { title: "Size", class: "num", cell: ({ chars }) => bytes(chars) },
];

function linkOf({ id, method, path, foreign }) {
  return [
    h("a", { href: `#/wire/${id}` }, `${method} ${path}`),
    foreign ? el("span.tag", "watched") : null,
  ];
}

function statusOf({ problem, status }) {
  const bad = problem || status >= 400;
  return h("span", { class: bad ? "bad" : null }, problem ? "broken" : (status ?? "…"));
}

const rows = (onlyCalls, chosen) =>
  exchanges
    .filter((exchange) => !onlyCalls || exchange.path.endsWith("/call"))
    .toReversed()
    .map((exchange) => {
      const row = el("tr", cellsOf(COLUMNS, exchange));
      row.classList.toggle("chosen", exchange === chosen);
      if (exchange === chosen) row.querySelector("a").setAttribute("aria-current", "true");
      return row;
    });

function detailOf(exchange) {
  const head = [
    `${exchange.method} ${exchange.path} HTTP/1.1`,
    ...Object.entries(exchange.headers).map(([name, value]) => `${name}: ${value}`),
  ];
  const request = `${head.join("\n")}\n${exchange.body === null ? "" : `\n${exchange.body}`}`;
  const answer = [
    `HTTP/1.1 ${exchange.status}`,
    ...exchange.answer.map(([name, value]) => `${name}: ${value}`),
  ];
  const muted = (words) => el("p.muted", words);
  const { status, problem, parts, left } = exchange;
  return [
    el("h2", "Request"),
    exchange.foreign ? el("p.hint", FOREIGN) : null,
    text(request),
    el("h2", "Answer"),
    status === null ? muted(problem ?? "Nothing yet.") : text(answer.join("\n")),
    parts.length
      ? el(
          "ol.events",
          parts.slice(0, MOST_PARTS).map((part) => partItem(part, exchange)),
        )
      : null,
    parts.length > MOST_PARTS ? muted(`${count(parts.length - MOST_PARTS)} more events.`) : null,
    left ? muted(`${bytes(left)} more are not in the log.`) : null,
    problem && status !== null ? el("p.problem", problem) : null,
  ];
}

function partItem(part, exchange) {
  const name = part.name === ":" ? "ping" : part.name;
  return el(
    "li",
    el(
      "div.part-head",
      exchange.foreign ? null : el("span.time", `+${part.t.toFixed(3)} s`),
      name ? h("span", { class: `badge event-${name}` }, name) : null,
      el("span.muted", bytes(part.length)),
    ),
    text(part.text.trimEnd()),
  );
}
