// Draws growing text as one text node. If the text is too long to lay out, it shows the end and states how much is missing.

import { formatCount } from "./format.js";
import { SHOWN_CHARS_MAX as CHARS_MAX } from "./shown_text.js";

export class PlainText {
  #node = document.createTextNode("");
  #drawnText = "";

  constructor(element) {
    this.element = element;
    element.append(this.#node);
  }

  /** Draw `text`, appending when it extends the text drawn before. */
  draw(text) {
    if (text.length <= CHARS_MAX && text.startsWith(this.#drawnText)) {
      this.#node.appendData(text.slice(this.#drawnText.length));
    } else {
      this.#node.data = text.length > CHARS_MAX ? cutStart(text) : text;
    }
    this.#drawnText = text;
  }
}

const cutStart = (text) =>
  `… (${formatCount(text.length - CHARS_MAX, "character")} before this are not shown)\n${text.slice(-CHARS_MAX)}`;
