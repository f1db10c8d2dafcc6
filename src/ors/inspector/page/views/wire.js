// @ts-check
// The wire view: each request of this page and its raw answer, with times.

import { fill, h, reachable } from "../widgets/dom.js";
import { text } from "../widgets/show.js";
import { bytes, clock, count, seconds } from "../widgets/words.js";
import { byId, changes, exchanges } from "../api/wire-log.js";

/** #/wire/NUMBER */
export async function show(main, [id]) {
  const list = h("tbody");
  const detail = reachable(h("section", { class: "card wire-detail", "aria-label": "Exchange" }));
  const onlyCalls = h("input", { type: "checkbox", on: { change: () => drawList() } });
  const chosen = id === undefined ? exchanges.at(-1) : byId(Number(id));
  const drawList = () => fill(list, rows(onlyCalls.checked, chosen));
  main.append(h("h1", null, "Wire"));
  if (!chosen && exchanges.length === 0) {
    main.append(
      h(
        "p",
        { class: "note" },
        "Nothing has been sent yet. This page lists its requests here, with their raw answers.",
      ),
    );
    return null;
  }
  const heads = ["Time", "Request", "Status", "Took", "Size"];
  main.append(
    h(
      "div",
      { class: "columns wire" },
      h(
        "section",
        { class: "card", "aria-label": "Requests" },
        h("div", { class: "bar" }, h("label", { class: "check" }, onlyCalls, "Calls only")),
        reachable(
          h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "exchanges" },
              h(
                "thead",
                null,
                h(
                  "tr",
                  null,
                  heads.map((title) =>
                    h(
                      "th",
                      { scope: "col", class: title === "Took" || title === "Size" ? "num" : null },
                      title,
                    ),
                  ),
                ),
              ),
              list,
            ),
          ),
        ),
      ),
      detail,
    ),
  );
  drawList();
  const drawDetail = () =>
    fill(
      detail,
      chosen
        ? detailOf(chosen)
        : h("p", { class: "muted" }, "This exchange is no longer in the log."),
    );
  drawDetail();
  const onChange = (/** @type {any} */ event) => {
    drawList();
    if (event.detail === chosen) drawDetail();
  };
  changes.addEventListener("change", onChange);
  return () => changes.removeEventListener("change", onChange);
}

function rows(onlyCalls, chosen) {
  return exchanges
    .filter((exchange) => !onlyCalls || exchange.path.endsWith("/call"))
    .toReversed()
    .map((exchange) =>
      h(
        "tr",
        { class: exchange === chosen ? "chosen" : null },
        h("td", { class: "muted num" }, clock(exchange.at)),
        h(
          "td",
          null,
          h(
            "a",
            { href: `#/wire/${exchange.id}`, "aria-current": exchange === chosen ? "true" : null },
            `${exchange.method} ${exchange.path}`,
          ),
          exchange.foreign ? h("span", { class: "tag" }, "watched") : null,
        ),
        h(
          "td",
          { class: exchange.problem || exchange.status >= 400 ? "bad" : null },
          exchange.problem ? "broken" : (exchange.status ?? "…"),
        ),
        h("td", { class: "num" }, exchange.seconds === null ? "…" : seconds(exchange.seconds)),
        h("td", { class: "num" }, bytes(exchange.chars)),
      ),
    );
}

function detailOf(exchange) {
  const head = [
    `${exchange.method} ${exchange.path} HTTP/1.1`,
    ...Object.entries(exchange.headers).map(([name, value]) => `${name}: ${value}`),
  ];
  const request = `${head.join("\n")}\n${exchange.body === null ? "" : `\n${exchange.body}`}`;
  const answer =
    exchange.status === null
      ? ""
      : [
          `HTTP/1.1 ${exchange.status}`,
          ...exchange.answer.map(([name, value]) => `${name}: ${value}`),
        ].join("\n");
  return [
    h("h2", null, "Request"),
    exchange.foreign
      ? h(
          "p",
          { class: "hint" },
          "From a watched session, as reported by the server. Its events have no times.",
        )
      : null,
    text(request),
    h("h2", null, "Answer"),
    answer ? text(answer) : h("p", { class: "muted" }, exchange.problem ?? "Nothing yet."),
    exchange.parts.length
      ? h(
          "ol",
          { class: "parts" },
          exchange.parts.slice(0, 300).map((part) => partItem(part, exchange)),
        )
      : null,
    exchange.parts.length > 300
      ? h("p", { class: "muted" }, `${count(exchange.parts.length - 300)} more events.`)
      : null,
    exchange.left
      ? h("p", { class: "muted" }, `${bytes(exchange.left)} more are not in the log.`)
      : null,
    exchange.problem && answer ? h("p", { class: "problem" }, exchange.problem) : null,
  ];
}

function partItem(part, exchange) {
  const time = exchange.foreign ? null : h("span", { class: "time" }, `+${part.t.toFixed(3)} s`);
  const kind = part.name
    ? h(
        "span",
        { class: `badge event-${part.name === ":" ? "ping" : part.name}` },
        part.name === ":" ? "ping" : part.name,
      )
    : null;
  return h(
    "li",
    null,
    h("div", { class: "part-head" }, time, kind, h("span", { class: "muted" }, bytes(part.length))),
    text(part.text.trimEnd()),
  );
}
