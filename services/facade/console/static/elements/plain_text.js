// Draws growing text as one text node and keeps only the end of a text that is too long to lay out.

const CHARS_MAX = 100_000; // about 2,000 lines of a build's output

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
      this.#node.data = text.length > CHARS_MAX ? `… ${text.slice(-CHARS_MAX)}` : text;
    }
    this.#drawnText = text;
  }
}
