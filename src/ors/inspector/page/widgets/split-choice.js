// @ts-check
// The choice of an environment and one of its splits, which is in the address of a view.

import { labelled, select } from "./dom.js";
import { address } from "./recorded.js";

/**
 * The environment and split of these names; where there are none, the first.
 * @param {import("../api/types.js").EnvironmentInfo[]} all
 * @param {string} [environment]
 * @param {string} [split]
 */
export function chosenSplit(all, environment, split) {
  const chosen = all.find((one) => one.name === environment) ?? all[0];
  const found = chosen.splits.find((one) => one.name === split) ?? chosen.splits[0];
  return { chosen, inSplit: found?.name };
}

/** Controls that lead to other environments and splits in a view. */
export function splitControls(view, all, chosen, split) {
  const names = (list) => list.map(({ name }) => name);
  const go = (...parts) => (location.hash = address([view, ...parts]));
  return [
    labelled(
      "Environment",
      select(names(all), chosen.name, (name) => go(name)),
    ),
    labelled(
      "Split",
      select(names(chosen.splits), split, (name) => go(chosen.name, name)),
    ),
  ];
}
