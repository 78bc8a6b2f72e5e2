// Files that go with the next question: each is uploaded when it is chosen, and named in the query.

import * as api from "../server/api.js";
import { button, h } from "../elements/dom.js";
import { size } from "../elements/format.js";

export class Attachments {
  #references = [];
  #uploads = [];

  /** `input` is the file input, `list` the element that shows what was chosen; `chatId()` says where it goes. */
  constructor(input, list, chatId) {
    this.input = input;
    this.list = list;
    this.chatId = chatId;
    input.addEventListener("change", () => this.#chosen());
  }

  /** The references for a query, when all are there; the list is empty afterwards. */
  async take() {
    await Promise.all(this.#uploads);
    if (this.list.querySelector(".problem")) throw new Error("Remove the file that was not stored.");
    this.#uploads = [];
    const taken = this.#references;
    this.#references = [];
    this.list.replaceChildren();
    return taken;
  }

  #chosen() {
    const files = [...this.input.files];
    this.input.value = ""; // so that the same file can be chosen again
    // One after the other, so that their order is that of the list.
    for (const file of files) this.#uploads.push(this.#upload(file, this.#uploads.at(-1)));
  }

  async #upload(file, before) {
    const state = h("small", {}, "uploading…");
    const item = h("li", {}, file.name, " ", state);
    this.list.append(item);
    await before;
    try {
      const reference = await api.upload(this.chatId(), file);
      this.#references.push(reference);
      state.textContent = size(file.size);
      item.append(
        button("×", () => this.#drop(reference, item), { class: "quiet", "aria-label": `Remove ${file.name}` }),
      );
    } catch (error) {
      state.textContent = error.message;
      item.classList.add("problem");
      item.append(button("×", () => item.remove(), { class: "quiet", "aria-label": `Remove ${file.name}` }));
    }
  }

  #drop(reference, item) {
    this.#references = this.#references.filter((other) => other !== reference);
    item.remove();
  }
}
