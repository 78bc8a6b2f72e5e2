// Shows blocks of text: reasoning and planning, folded away at their end, and the answer, which is Markdown.

import { createElement } from "../elements/dom.js";
import { scheduleForFrame } from "../elements/redraw.js";
import { Markdown } from "../markdown/markdown.js";
import { PlainText } from "../elements/plain_text.js";

export class ReasoningView {
  #text = new PlainText(createElement("div", { class: "thought" }));
  #label;
  #drawCallback = () => this.#text.draw(this.block.text);

  constructor(openLabel = "Thinking", label = "Reasoning") {
    this.label = label;
    this.#label = createElement("span", {}, openLabel);
    this.element = createElement(
      "details",
      { class: "reasoning", open: true },
      createElement("summary", {}, this.#label),
      this.#text.element,
    );
    this.element.classList.add("live");
  }

  update(block, isOpen) {
    this.block = block;
    scheduleForFrame(this.#drawCallback);
    if (isOpen) return;
    this.#label.textContent = this.label;
    this.element.classList.remove("live");
    this.element.open = false;
  }
}

export class AnswerView {
  #markdown;
  #drawCallback = () => {
    this.#markdown.draw(this.block.text);
    if (!this.isOpen) this.#markdown.end();
  };

  constructor(onFinal) {
    this.element = createElement("div", { class: "answer" });
    this.#markdown = new Markdown(this.element, onFinal);
  }

  update(block, isOpen) {
    this.block = block;
    this.isOpen = isOpen;
    this.element.classList.toggle("live", isOpen);
    scheduleForFrame(this.#drawCallback);
  }
}
