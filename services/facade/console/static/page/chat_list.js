// The list of chats, newest first, a page at a time.

import * as api from "../server/api.js";
import { button, h } from "../elements/dom.js";
import { onDay } from "../elements/format.js";
import { hashOf } from "./address.js";

export class Chats {
  #list = h("ul");
  #more = button("Show more", () => this.#load(this.#nextPage));
  #nextPage = "";

  /** `onDeleted(chatId)`; `problem(error)`. */
  constructor(element, { onDeleted, problem }) {
    this.onDeleted = onDeleted;
    this.problem = problem;
    this.current = null;
    element.append(this.#list, this.#more);
    this.#more.hidden = true;
  }

  /** Read the first page again. */
  refresh() {
    return this.#load("");
  }

  mark(chatId) {
    this.current = chatId;
    for (const item of this.#list.children) this.#markItem(item);
  }

  async #load(page) {
    try {
      const { data, nextPageToken } = await api.chats(page);
      const items = data.map((chat) => this.#item(chat));
      if (page) this.#list.append(...items);
      else this.#list.replaceChildren(...items);
      this.#nextPage = nextPageToken ?? "";
      this.#more.hidden = !this.#nextPage;
      this.mark(this.current);
    } catch (error) {
      this.problem(error);
    }
  }

  #item(chat) {
    const about = h("small", {}, `${chat.firstAgentKey} · ${onDay(chat.updatedAt)}`);
    const open = h("a", { href: hashOf({ chatId: chat.chatId }) }, h("span", {}, chat.chatName), about);
    const remove = button("×", () => this.#confirm(chat), { class: "quiet", "aria-label": `Delete ${chat.chatName}` });
    return h("li", { "data-chat-id": chat.chatId }, open, remove);
  }

  #markItem(item) {
    const isCurrent = item.dataset.chatId === this.current;
    const link = item.querySelector("a");
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }

  #confirm({ chatId, chatName }) {
    const dialog = h("dialog", { "aria-labelledby": "delete-title" });
    const act = async () => {
      dialog.close();
      try {
        await api.remove(chatId);
        this.onDeleted(chatId);
      } catch (error) {
        this.problem(error);
      }
    };
    dialog.append(
      h("h2", { id: "delete-title" }, `Delete “${chatName}”?`),
      h("p", {}, "The chat, its log and its files are removed for good."),
      h(
        "div",
        { class: "actions" },
        button("Keep", () => dialog.close()),
        button("Delete", act, { class: "danger" }),
      ),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}
