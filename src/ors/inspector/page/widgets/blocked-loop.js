// @ts-check
// A note on methods that held the server's event loop.

import { h } from "./dom.js";
import { seconds } from "./words.js";

/**
 * What sessions tell about their environments; null if no method held the loop.
 * @param {import("../api/types.js").SessionRow[]} sessions
 */
export function blockedLoopNote(sessions) {
  const held = new Map(sessions.flatMap((session) => Object.entries(session.held ?? {})));
  if (held.size === 0) return null;
  const methods = [...held]
    .map(([method, longest]) => `${method} (${seconds(longest)})`)
    .join(", ");
  return h(
    "p",
    { class: "note held" },
    `Held the event loop, and all sessions with it: ${methods}. ` +
      "Make it a plain def, or await what takes long.",
  );
}
