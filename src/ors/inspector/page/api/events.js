// @ts-check
// Decodes event streams from text that is cut anywhere.

/** Turns the text of a stream into events. */
export class Decoder {
  #rest = "";

  /**
   * @param {string} text
   * @returns {import("./types.js").StreamEvent[]} those that are complete
   */
  feed(text) {
    // A CR at the end may be half of a CRLF, so it waits for more text.
    const held = (this.#rest + text).replace(/\r\n|\r(?!$)/g, "\n");
    const blocks = held.split("\n\n");
    this.#rest = blocks.pop();
    return blocks.filter((block) => block !== "").map(decoded);
  }
}

/** @param {string} raw */
function decoded(raw) {
  /** @type {{name: string, data: string[], more: Record<string, string>, raw: string}} */
  const found = { name: "message", data: [], more: {}, raw };
  for (const line of raw.split("\n")) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") found.data.push(value);
    else if (field === "event") found.name = value;
    else if (field === "") found.name = found.data.length ? found.name : ":";
    else found.more[field] = value;
  }
  if (found.name === ":" && found.data.length) found.name = "message";
  return { ...found, data: found.data.join("\n") };
}

/**
 * Decodes a complete stream.
 * @param {string} text
 */
export const decodeAll = (text) => new Decoder().feed(text);
