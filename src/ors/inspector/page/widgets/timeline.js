// @ts-check
// The time of an episode as a strip: requests to the model, and calls.

import { el, s } from "./dom.js";
import { plural, reward, seconds } from "./words.js";

const WIDTH = 360;
const HEIGHT = 46;
const BASE = 30;

/** `steps` are calls with `started` and `seconds`; `jump(n)` shows a call. */
export function timeline(steps, messages, total, jump) {
  const span = Math.max(
    Number(total) || 0,
    ...steps.map((step) => (step.started ?? 0) + (step.seconds ?? 0)),
  );
  if (!(span > 0)) return el("p.muted", "No times were recorded.");
  const x = (at) => (Math.max(0, Math.min(at, span)) / span) * WIDTH;
  const box = (from, to, props, ...inside) =>
    s(
      "rect",
      {
        x: x(from).toFixed(1),
        y: 16,
        width: Math.max(1, x(to) - x(from)).toFixed(1),
        height: BASE - 16,
        ...props,
      },
      ...inside,
    );
  const thought = thinking(messages, span);
  const [modelSeconds, callSeconds] = [
    thought.reduce((sum, [from, to]) => sum + to - from, 0),
    steps.reduce((sum, step) => sum + (step.seconds ?? 0), 0),
  ];
  const label =
    `${seconds(modelSeconds)} in model requests, ` +
    `${seconds(callSeconds)} in ${plural(steps.length, "call")}, ${seconds(span)} in total`;
  return el(
    "figure.timeline",
    s(
      "svg",
      { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
      s("rect", { class: "room", x: 0, y: 16, width: WIDTH, height: BASE - 16 }),
      thought.map(([from, to]) => box(from, to, { class: "thought" })),
      steps.map((step) =>
        box(
          step.started ?? 0,
          (step.started ?? 0) + (step.seconds ?? 0),
          { class: `called ${step.status}`, on: { click: () => jump(step.n) } },
          s("title", null, `${step.n} ${step.tool}, ${seconds(step.seconds)}`),
        ),
      ),
      steps
        .filter((step) => typeof step.output.reward === "number" && step.output.reward !== 0)
        .map((step) =>
          s(
            "circle",
            {
              class: step.output.reward > 0 ? "earned plus" : "earned minus",
              cx: Math.max(
                4,
                Math.min(WIDTH - 4, x((step.started ?? 0) + (step.seconds ?? 0))),
              ).toFixed(1),
              cy: 8,
              r: 3.5,
            },
            s("title", null, `reward ${reward(step.output.reward)}`),
          ),
        ),
      s("text", { x: 0, y: HEIGHT - 3 }, "0"),
      s("text", { x: WIDTH, y: HEIGHT - 3, "text-anchor": "end" }, seconds(span)),
    ),
    el(
      "figcaption",
      el("span.legend.c", `model ${seconds(modelSeconds)}`),
      el("span.legend.a", `calls ${seconds(callSeconds)}`),
    ),
  );
}

/** When the model was asked: each request ends where its first call begins. */
function thinking(messages, span) {
  return messages.flatMap((message, n) => {
    if (message.role !== "assistant" || !(message.seconds > 0)) return [];
    const next = messages
      .slice(n + 1)
      .find((one) => one.role === "tool" || one.role === "assistant");
    const end = next?.role === "tool" ? Number(next.started ?? span) : next ? null : span;
    return end === null ? [] : [[Math.max(0, end - message.seconds), end]];
  });
}
