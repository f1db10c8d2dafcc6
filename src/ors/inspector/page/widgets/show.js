// @ts-check
// Shows values: text, images of known types, JSON as a tree.

import { button, el, failure, h, reachable } from "./dom.js";
import { isObject, isRaw, short } from "../api/json.js";
import { looksLikeMarkdown, markdown } from "./markdown.js";
import { bytes, count } from "./words.js";

const PIECE = 20_000;
const FIRST_ITEMS = 100;
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;

/** Monospace text; of a long text only the beginning, with a button for the rest. */
export function text(value) {
  const first = reachable(el("pre.text", value.slice(0, PIECE)));
  if (value.length <= PIECE) return first;
  const whole = el("div.long", first);
  const more = button(
    `Show all ${count(value.length)} characters`,
    () => {
      more.remove();
      // In pieces, which the browser renders only when they are visible.
      for (let at = PIECE; at < value.length; at += PIECE)
        whole.append(reachable(el("pre.text.piece", value.slice(at, at + PIECE))));
    },
    { class: "small" },
  );
  whole.append(more);
  return whole;
}

/** A text that may be Markdown, rendered or as it is: `rendered` is how it is shown first. */
export function rich(value, rendered = true) {
  if (value.length > PIECE || !looksLikeMarkdown(value)) return text(value);
  let shown = rendered;
  const draw = () => {
    const content = shown ? markdown(value) : text(value);
    content.querySelectorAll("pre.text, .scroll").forEach(reachable);
    return content;
  };
  const turn = button(
    shown ? "As text" : "As Markdown",
    () => {
      shown = !shown;
      turn.textContent = shown ? "As text" : "As Markdown";
      whole.firstElementChild.replaceWith(draw());
    },
    { class: "small quiet" },
  );
  const whole = el("div.rich", draw(), turn);
  return whole;
}

/** The blocks of an output; `load` fetches the content of those that are kept as blobs. */
export const blocks = (list, load = null) => shownBlocks(list, load, false);

/** The blocks of a prompt, in which Markdown is rendered. */
export const promptBlocks = (list, load = null) => shownBlocks(list, load, true);

function shownBlocks(list, load, rendered) {
  if (!Array.isArray(list)) return [tree(list)];
  return list.map((block) =>
    el(
      "div.block",
      blockOf(block, load, rendered),
      block?.detail ? el("div.detail", el("span.muted", "detail"), tree(block.detail)) : null,
    ),
  );
}

function blockOf(block, load, rendered) {
  if (typeof block?.text === "string") return rich(block.text, rendered);
  if (typeof block?.data === "string" && (block.type ?? "image") === "image") return image(block);
  if (typeof block?.blob === "string" && load) return kept(block, load);
  return tree(block);
}

/** A blob: an image is fetched when it is in sight, a text when it is asked for. */
function kept(block, load) {
  const place = el("div.kept");
  const put = async () => {
    try {
      const content = await load(block.blob);
      place.replaceWith(
        block.type === "image"
          ? image({ ...block, data: await base64(content) })
          : text(new TextDecoder().decode(content)),
      );
    } catch (error) {
      place.replaceChildren(failure(error));
    }
  };
  if (block.type !== "image") {
    place.append(button("Show a long text", put, { class: "small" }));
    return place;
  }
  const sight = new IntersectionObserver(
    ([seen]) => {
      if (!seen.isIntersecting) return;
      sight.disconnect();
      put();
    },
    { rootMargin: "400px" },
  );
  place.append(el("p.muted", "Loading an image…"));
  sight.observe(place);
  return place;
}

function base64(content) {
  return new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => {
      const url = String(reader.result);
      done(url.slice(url.indexOf(",") + 1));
    };
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(new Blob([content]));
  });
}

function image(block) {
  const kind = String(block.mimeType).toLowerCase();
  const size = bytes(Math.floor((block.data.length * 3) / 4));
  if (!IMAGES.has(kind) || !BASE64.test(block.data)) {
    return el("p.muted", `An image of type ${short(kind, 60)} (${size}), which is not shown.`);
  }
  const picture = h("img.picture", {
    src: `data:${kind};base64,${block.data}`,
    alt: `Image, ${kind}, ${size}`,
  });
  picture.addEventListener("error", () =>
    (picture.closest(".enlarge") ?? picture).replaceWith(
      el("p.muted", `An image of type ${kind} (${size}) that cannot be read.`),
    ),
  );
  return h(
    "button",
    { type: "button", class: "enlarge", title: "Enlarge", on: { click: () => enlarge(picture) } },
    picture,
  );
}

/** Shows an image as large as the window allows. */
function enlarge(picture) {
  const close = h("button", { type: "button", class: "small" }, "Close");
  const large = h(
    "dialog.large",
    { "aria-label": picture.alt },
    h("img", { src: picture.src, alt: picture.alt }),
    close,
  );
  large.addEventListener("click", () => large.close());
  large.addEventListener("close", () => large.remove());
  document.body.append(large);
  large.showModal();
}

/** A JSON value as a collapsible tree. */
export function tree(value, name = null, depth = 0) {
  const label = name === null ? null : el("span.key", `${name}: `);
  if (!isObject(value) && !Array.isArray(value)) return el("div.leaf", label, leaf(value));
  const entries = Array.isArray(value) ? value.map((item, n) => [n, item]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${count(entries.length)}]` : `{${count(entries.length)}}`;
  if (entries.length === 0)
    return el("div.leaf", label, el("span.muted", Array.isArray(value) ? "[]" : "{}"));
  const below = el("div.branches");
  const preview = el("span.muted.preview", short(value, 80));
  const branch = el(
    "details.branch",
    el("summary", label, el("span.muted", size), " ", preview),
    below,
  );
  const grow = () => below.childElementCount === 0 && addEntries(below, entries, 0, depth);
  branch.addEventListener("toggle", grow, { once: true });
  if (depth < 1) {
    grow();
    branch.open = true;
  }
  return branch;
}

function addEntries(below, entries, from, depth) {
  for (const [name, item] of entries.slice(from, from + FIRST_ITEMS))
    below.append(tree(item, name, depth + 1));
  const left = entries.length - from - FIRST_ITEMS;
  if (left <= 0) return;
  const more = button(
    `${count(left)} more`,
    () => {
      more.remove();
      addEntries(below, entries, from + FIRST_ITEMS, depth);
    },
    { class: "small" },
  );
  below.append(more);
}

function leaf(value) {
  if (isRaw(value)) return el("span.value.number", value.rawJSON);
  if (typeof value === "string")
    return value.length > 200 || value.includes("\n")
      ? text(value)
      : el("span.value.string", JSON.stringify(value));
  return h("span", { class: `value ${value === null ? "null" : typeof value}` }, String(value));
}
