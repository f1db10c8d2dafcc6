// @ts-check
// A histogram of rewards, whose bars can be chosen.

import { el, h } from "./dom.js";
import { count, plural, reward } from "./words.js";

const FEW = 12;
const TONES = ["a", "b"];
const brief = (value) => String(Number(value.toPrecision(3)));

/**
 * `bars` are `{from, to, least, most, counts}`, with one count for each series; `without` episodes failed.
 * `chosen(bar)` says whether a bar is selected, or null if none is; `choose(bar)` selects it.
 * @param {object} given
 * @param {import("../api/types.js").Bar[]} given.bars
 * @param {number} [given.without]
 * @param {string[]} [given.names]
 * @param {(bar: import("../api/types.js").Bar) => boolean | null} [given.chosen]
 * @param {((bar: import("../api/types.js").Bar) => any) | null} [given.choose]
 */
export function histogram({
  bars,
  without = 0,
  names = ["episodes"],
  chosen = () => null,
  choose = null,
}) {
  if (bars.length === 0) return el("p.muted.note", "All of these episodes failed.");
  const highest = Math.max(...bars.flatMap((bar) => bar.counts));
  const columns = bars.map((bar, n) =>
    column(bar, n, { highest, names, few: bars.length <= FEW, chosen: chosen(bar), choose }),
  );
  const last = bars.at(-1);
  return el(
    "figure.histogram",
    h("div.bars", { role: "group", "aria-label": "Episodes by reward" }, columns),
    bars.length <= FEW
      ? null
      : h(
          "div.ends",
          { "aria-hidden": "true" },
          [bars[0].from, (bars[0].from + last.to) / 2, last.to].map((edge) =>
            el("span", brief(edge)),
          ),
        ),
    el(
      "figcaption",
      names.map((name, n) => h("span", { class: `legend ${TONES[n]}` }, name)),
      without ? el("span.muted", `${plural(without, "failed episode")} left out`) : null,
    ),
  );
}

function column(bar, n, { highest, names, few, chosen, choose }) {
  const value = bar.from === bar.to ? reward(bar.from) : `${reward(bar.from)} to ${reward(bar.to)}`;
  const counted = bar.counts.map((each, k) =>
    names.length > 1 ? `${count(each)} ${names[k]}` : count(each),
  );
  const label = `Reward ${value}: ${counted.join(", ")}`;
  const heights = bar.counts.map((each, k) => {
    const drawn = h("span", { class: `drawn ${TONES[k]}`, "data-count": each });
    drawn.style.height = each ? `max(2px, ${(each / highest) * 100}%)` : "0";
    return drawn;
  });
  const inside = [el("span.stack", heights), few ? el("span.edge", reward(bar.from)) : null];
  if (!choose) return h("div.column", { title: label, role: "img", "aria-label": label }, inside);
  return h(
    "button",
    {
      type: "button",
      class: "column",
      title: label,
      "aria-label": label,
      "aria-pressed": String(chosen === true),
      "data-dim": chosen === false,
      on: { click: () => choose(bar) },
    },
    inside,
  );
}
