// Markdown drawn while it comes: finished blocks are drawn once, only the last one again. Built by createElement
// alone, so there is nothing to sanitise.

import { blocks, blocksOf } from "./blocks.js";
import { h } from "../elements/dom.js";
import { inline } from "./inline.js";

const DEPTH_MAX = 8; // quotes and lists within each other

export class Markdown {
  #drawn = "";
  #finalChars = 0;
  #last = null; // {element, code?, language?}: of the block that may still grow

  /** `onFinal` is given the text of each block when nothing can be added to it any more. */
  constructor(element, onFinal = () => {}) {
    this.element = element;
    this.onFinal = onFinal;
  }

  /** Draw `text`: what was drawn before, and more; any other text is drawn anew. */
  draw(text) {
    if (text === this.#drawn) return;
    if (!text.startsWith(this.#drawn)) this.#clear();
    this.#drawn = text;
    const rest = text.slice(this.#finalChars);
    const found = blocks(rest);
    const lines = found.length > 1 ? rest.split("\n") : [];
    found.forEach((block, index) => {
      if (index > 0) this.#finish();
      this.#drawLast(block);
    });
    if (found.length > 1) {
      const before = lines.slice(0, found.at(-1).start);
      this.#finalChars += before.reduce((sum, line) => sum + line.length + 1, 0);
    }
  }

  /** Nothing will be added. */
  end() {
    if (this.#last) this.#finish();
  }

  #clear() {
    this.element.replaceChildren();
    this.#finalChars = 0;
    this.#last = null;
  }

  #finish() {
    this.onFinal(this.#last.element.textContent);
    this.#last = null;
  }

  #drawLast(block) {
    const { code: grown, language } = this.#last ?? {};
    if (grown && block.kind === "code" && block.language === language && block.text.startsWith(grown.data)) {
      grown.appendData(block.text.slice(grown.data.length));
      return;
    }
    const element = draw(block, 0);
    if (this.#last) this.#last.element.replaceWith(element);
    else this.element.append(element);
    const code = block.kind === "code" ? element.querySelector("code").firstChild : null;
    this.#last = { element, code, language: block.language };
  }
}

function draw(block, depth) {
  switch (block.kind) {
    case "heading":
      // The page has its own first and second levels.
      return h(`h${Math.min(block.level + 2, 6)}`, {}, ...inline(block.text));
    case "code":
      return codeBlock(block);
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", {}, ...nested(block.lines, depth));
    case "list":
      return list(block, depth);
    case "table":
      return table(block);
    default:
      return h("p", {}, ...inline(block.text.trim()));
  }
}

function nested(lines, depth) {
  if (depth >= DEPTH_MAX) return [lines.join("\n")];
  return blocksOf(lines).map((block) => draw(block, depth + 1));
}

function codeBlock({ language, text }) {
  const code = h("code");
  code.append(document.createTextNode(text));
  return h("pre", { tabindex: "0", role: "group", "aria-label": language ? `Code, ${language}` : "Code" }, code);
}

function list({ isOrdered, from, items }, depth) {
  const drawn = items.map((lines) => h("li", {}, ...nested(lines, depth)));
  return isOrdered ? h("ol", { start: from === 1 ? null : from }, ...drawn) : h("ul", {}, ...drawn);
}

function table({ header, aligned, rows }) {
  const row = (cells, tag) =>
    h("tr", {}, ...cells.map((cell, column) => h(tag, { class: `to-${aligned[column]}` }, ...inline(cell))));
  const head = h("thead", {}, row(header, "th"));
  const body = h("tbody", {}, ...rows.map((cells) => row(cells, "td")));
  return h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, head, body));
}
