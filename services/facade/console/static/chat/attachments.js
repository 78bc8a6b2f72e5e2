// Holds the files for the next question: each is uploaded when it is chosen and named in the query.

import * as api from "../server/api.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatSize } from "../elements/format.js";

export class Attachments {
  #references = [];
  #uploads = [];

  /** `input` is the file input, `list` the element that lists the files; `getChatId()` returns the chat for uploads. */
  constructor(input, list, getChatId) {
    this.input = input;
    this.list = list;
    this.getChatId = getChatId;
    input.addEventListener("change", () => this.#uploadChosen());
  }

  /** Wait for the uploads, return their references for a query and empty the list. */
  async takeReferences() {
    await Promise.all(this.#uploads);
    if (this.list.querySelector(".problem")) throw new Error("Remove the file that failed to upload.");
    const references = this.#references;
    this.clear();
    return references;
  }

  /** Leave the files of a chat that is left, uploaded or not. */
  clear() {
    this.#uploads = [];
    this.#references = [];
    this.list.replaceChildren();
  }

  #uploadChosen() {
    const files = [...this.input.files];
    this.input.value = ""; // so that the same file can be chosen again
    // Uploads run one after the other, so that the references have the order of the list.
    for (const file of files) this.#uploads.push(this.#uploadFile(file, this.#uploads.at(-1)));
  }

  async #uploadFile(file, previousUpload) {
    const state = createElement("small", {}, "uploading…");
    const item = createElement("li", {}, file.name, " ", state);
    this.list.append(item);
    await previousUpload;
    if (!item.isConnected) return;
    let reference = null;
    try {
      reference = await api.uploadFile(this.getChatId(), file);
      if (!item.isConnected) return;
      this.#references.push(reference);
      state.textContent = formatSize(file.size);
    } catch (error) {
      state.textContent = error.message;
      item.classList.add("problem");
    }
    const remove = () => this.#removeReference(reference, item);
    item.append(createButton("×", remove, { class: "quiet", "aria-label": `Remove ${file.name}` }));
  }

  #removeReference(reference, item) {
    this.#references = this.#references.filter((other) => other !== reference);
    item.remove();
  }
}
