// As much of a document as the modules under test need: elements with a tag, attributes and children.

class FakeElement {
  attributes = {};
  childNodes = [];

  constructor(tag) {
    this.tagName = tag.toUpperCase();
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  addEventListener() {}

  append(...children) {
    this.childNodes.push(...children);
  }
}

globalThis.document = { createElement: (tag) => new FakeElement(tag) };
globalThis.ResizeObserver = class {
  observe() {}
};

/** A node as text: `<p>words <strong>more</strong></p>`, with the attributes that are asked for. */
export function written(node, ...attributes) {
  if (Array.isArray(node)) return node.map((each) => written(each, ...attributes)).join("");
  if (!(node instanceof FakeElement)) return String(node);
  const tag = node.tagName.toLowerCase();
  const shown = attributes
    .filter((name) => node.attributes[name] !== undefined)
    .map((name) => ` ${name}="${node.attributes[name]}"`);
  return `<${tag}${shown.join("")}>${written(node.childNodes, ...attributes)}</${tag}>`;
}
