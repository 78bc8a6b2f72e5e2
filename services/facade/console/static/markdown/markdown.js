// Draws Markdown as it arrives: finished blocks are drawn once, and only the last one again.

import { enrich } from "./enrich.js";
import { lexBlocks } from "./lexer.js";
import { findLanguage, renderBlock } from "./render.js";

// The last line, held back while it may open a code block or continue the paragraph.
const OPENS_CODE = /^ {0,3}`{3}/;

export class Markdown {
  #given = "";
  #drawnText = "";
  #finalChars = 0;
  #definesLinks = false; // for blocks that may be finished
  #last = null; // {element, code?, language?} of the block that may still grow

  /** `onFinal` receives the text of each block once nothing can be added to it. */
  constructor(element, onFinal = () => {}) {
    this.element = element;
    this.onFinal = onFinal;
  }

  /** Draw `text`; when it extends the text drawn before, its finished blocks stay. */
  draw(given) {
    this.#given = given.replaceAll("\r\n", "\n");
    const lastLine = this.#given.lastIndexOf("\n") + 1;
    this.#drawText(OPENS_CODE.test(this.#given.slice(lastLine)) ? this.#given.slice(0, lastLine) : this.#given);
  }

  #drawText(text) {
    if (text === this.#drawnText) return;
    if (!text.startsWith(this.#drawnText)) this.#clear();
    this.#drawnText = text;
    this.#drawRest(this.onFinal);
  }

  /** Finish the last block: nothing will be added. */
  end() {
    this.#drawText(this.#given);
    if (this.#last) this.#finishLast(this.onFinal);
    if (!this.#definesLinks) return;
    const text = this.#drawnText;
    this.#clear();
    this.#drawnText = text;
    this.#drawRest(() => {});
    this.#finishLast(() => {});
    this.#definesLinks = false;
  }

  #drawRest(onFinal) {
    let chars = this.#finalChars;
    let isFirst = true;
    const { tokens, definesLinks } = lexBlocks(this.#drawnText.slice(this.#finalChars));
    this.#definesLinks ||= definesLinks;
    for (const token of tokens) {
      if (token.type !== "space") {
        if (!isFirst) this.#finishLast(onFinal);
        isFirst = false;
        this.#drawLast(token);
        this.#finalChars = chars;
      }
      chars += token.raw.length;
    }
  }

  #clear() {
    this.element.replaceChildren();
    this.#finalChars = 0;
    this.#definesLinks = false;
    this.#last = null;
  }

  #finishLast(onFinal) {
    if (this.#last?.element) {
      onFinal(this.#last.element.textContent);
      enrich(this.#last.element);
    }
    this.#last = null;
  }

  #drawLast(token) {
    const { code: codeText, language } = this.#last ?? {};
    const isSameCode = token.type === "code" && codeText && language === findLanguage(token);
    if (isSameCode && token.text.startsWith(codeText.data)) {
      codeText.appendData(token.text.slice(codeText.data.length));
      return;
    }
    const element = renderBlock(token);
    const before = this.#last?.element;
    if (before && element) before.replaceWith(element);
    else if (before) before.remove();
    else if (element) this.element.append(element);
    const code = token.type === "code" ? element.querySelector("code").firstChild : null;
    this.#last = { element, code, language: token.type === "code" ? findLanguage(token) : "" };
  }
}
