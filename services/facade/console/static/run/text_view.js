// Blocks of text: reasoning, which folds away when it is over, and the answer, which is Markdown.

import { h } from "../elements/dom.js";
import { soon } from "../elements/redraw.js";
import { Markdown } from "../markdown/markdown.js";
import { PlainText } from "../elements/plain_text.js";

export class ReasoningView {
  #text = new PlainText(h("div", { class: "thought" }));
  #label = h("span", {}, "Thinking");
  #draw = () => this.#text.draw(this.block.text);

  constructor() {
    this.element = h("details", { class: "reasoning", open: true }, h("summary", {}, this.#label), this.#text.element);
    this.element.classList.add("live");
  }

  update(block, isOpen) {
    this.block = block;
    soon(this.#draw);
    if (isOpen) return;
    this.#label.textContent = "Reasoning";
    this.element.classList.remove("live");
    this.element.open = false;
  }
}

export class AnswerView {
  #markdown;
  #draw = () => {
    this.#markdown.draw(this.block.text);
    if (!this.isOpen) this.#markdown.end();
  };

  constructor(onFinal) {
    this.element = h("div", { class: "answer" });
    this.#markdown = new Markdown(this.element, onFinal);
  }

  update(block, isOpen) {
    this.block = block;
    this.isOpen = isOpen;
    this.element.classList.toggle("live", isOpen);
    soon(this.#draw);
  }
}
