// Searches chats as the user types: each chat appears once, with its best match.

import * as api from "../server/api.js";
import { createElement } from "../elements/dom.js";
import { formatHash } from "../navigation/address.js";

const PAUSE_MS = 200; // between key strokes

export class ChatSearch {
  #input;
  #hits;
  #timer;
  #asked = ""; // an answer to an earlier question is dropped

  /** `onChange(isSearching)` runs when hits take the list's place, and when they leave it. */
  constructor(input, hits, { onChange, onProblem }) {
    this.#input = input;
    this.#hits = hits;
    this.onChange = onChange;
    this.onProblem = onProblem;
    input.addEventListener("input", () => this.#wait());
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
    });
  }

  clear() {
    this.#input.value = "";
    this.#wait();
  }

  #wait() {
    clearTimeout(this.#timer);
    this.#asked = this.#input.value.trim();
    if (this.#asked) this.#timer = setTimeout(() => this.#search(this.#asked), PAUSE_MS);
    else this.#show(null);
  }

  async #search(words) {
    try {
      const found = await api.searchChats(words);
      if (words === this.#asked) this.#show(found);
    } catch (error) {
      this.onProblem(error);
    }
  }

  #show(found) {
    const best = new Map();
    for (const hit of found ?? []) if (!best.has(hit.chatId)) best.set(hit.chatId, hit);
    const items = [...best.values()].map(createItem);
    this.#hits.replaceChildren(...items);
    if (found && !items.length) this.#hits.append(createElement("li", {}, "No chats found."));
    this.#hits.hidden = !found;
    this.onChange(Boolean(found));
  }
}

function createItem({ chatId, title, excerpt }) {
  const about = excerpt === title ? null : createElement("small", {}, excerpt);
  return createElement(
    "li",
    {},
    createElement("a", { href: formatHash({ chatId }) }, createElement("span", {}, title), about),
  );
}
