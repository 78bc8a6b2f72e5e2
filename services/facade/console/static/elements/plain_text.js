// Text that only grows, as one text node; the page keeps the end of what is too long to lay out.

const CHARS_MAX = 100_000; // some 2,000 lines of a build's output

export class PlainText {
  #node = document.createTextNode("");
  #drawn = "";

  constructor(element) {
    this.element = element;
    element.append(this.#node);
  }

  /** Draw `text`, which is what was drawn before and more, or another text. */
  draw(text) {
    if (text.length <= CHARS_MAX && text.startsWith(this.#drawn)) {
      this.#node.appendData(text.slice(this.#drawn.length));
    } else {
      this.#node.data = text.length > CHARS_MAX ? `… ${text.slice(-CHARS_MAX)}` : text;
    }
    this.#drawn = text;
  }
}
