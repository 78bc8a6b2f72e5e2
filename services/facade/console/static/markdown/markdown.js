// Draws Markdown as it arrives: finished blocks are drawn once, and only the last one again. Elements come from
// createElement alone, so there is nothing to sanitise.

import { parseBlocks, parseLines } from "./blocks.js";
import { createElement } from "../elements/dom.js";
import { renderInline } from "./inline.js";

const DEPTH_MAX = 8; // nested quotes and lists

export class Markdown {
  #drawnText = "";
  #finalChars = 0;
  #last = null; // {element, code?, language?} of the block that may still grow

  /** `onFinal` receives the text of each block once nothing can be added to it. */
  constructor(element, onFinal = () => {}) {
    this.element = element;
    this.onFinal = onFinal;
  }

  /** Draw `text`; when it extends the text drawn before, its finished blocks stay. */
  draw(text) {
    if (text === this.#drawnText) return;
    if (!text.startsWith(this.#drawnText)) this.#clear();
    this.#drawnText = text;
    const rest = text.slice(this.#finalChars);
    const blocks = parseBlocks(rest);
    const lines = blocks.length > 1 ? rest.split("\n") : [];
    blocks.forEach((block, index) => {
      if (index > 0) this.#finishLast();
      this.#drawLast(block);
    });
    if (blocks.length > 1) {
      const before = lines.slice(0, blocks.at(-1).start);
      this.#finalChars += before.reduce((sum, line) => sum + line.length + 1, 0);
    }
  }

  /** Finish the last block: nothing will be added. */
  end() {
    if (this.#last) this.#finishLast();
  }

  #clear() {
    this.element.replaceChildren();
    this.#finalChars = 0;
    this.#last = null;
  }

  #finishLast() {
    this.onFinal(this.#last.element.textContent);
    this.#last = null;
  }

  #drawLast(block) {
    const { code: codeText, language } = this.#last ?? {};
    if (codeText && block.kind === "code" && block.language === language && block.text.startsWith(codeText.data)) {
      codeText.appendData(block.text.slice(codeText.data.length));
      return;
    }
    const element = renderBlock(block, 0);
    if (this.#last) this.#last.element.replaceWith(element);
    else this.element.append(element);
    const code = block.kind === "code" ? element.querySelector("code").firstChild : null;
    this.#last = { element, code, language: block.language };
  }
}

function renderBlock(block, depth) {
  switch (block.kind) {
    case "heading":
      // The page has its own first and second levels.
      return createElement(`h${Math.min(block.level + 2, 6)}`, {}, ...renderInline(block.text));
    case "code":
      return renderCode(block);
    case "rule":
      return createElement("hr");
    case "quote":
      return createElement("blockquote", {}, ...renderNested(block.lines, depth));
    case "list":
      return renderList(block, depth);
    case "table":
      return renderTable(block);
    default:
      return createElement("p", {}, ...renderInline(block.text.trim()));
  }
}

function renderNested(lines, depth) {
  if (depth >= DEPTH_MAX) return [lines.join("\n")];
  return parseLines(lines).map((block) => renderBlock(block, depth + 1));
}

function renderCode({ language, text }) {
  const code = createElement("code");
  code.append(document.createTextNode(text));
  return createElement(
    "pre",
    { tabindex: "0", role: "group", "aria-label": language ? `Code, ${language}` : "Code" },
    code,
  );
}

function renderList({ isOrdered, firstNumber, items }, depth) {
  const elements = items.map((lines) => createElement("li", {}, ...renderNested(lines, depth)));
  return isOrdered
    ? createElement("ol", { start: firstNumber === 1 ? null : firstNumber }, ...elements)
    : createElement("ul", {}, ...elements);
}

function renderTable({ header, alignments, rows }) {
  const row = (cells, tag) =>
    createElement(
      "tr",
      {},
      ...cells.map((cell, column) => createElement(tag, { class: `to-${alignments[column]}` }, ...renderInline(cell))),
    );
  const head = createElement("thead", {}, row(header, "th"));
  const body = createElement("tbody", {}, ...rows.map((cells) => row(cells, "td")));
  return createElement(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": "Table" },
    createElement("table", {}, head, body),
  );
}
