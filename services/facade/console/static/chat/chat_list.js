// Lists the chats, newest first, a page at a time, and those that others share; renames, shares and deletes one's own.

import * as api from "../server/api.js";
import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { formatHash } from "../navigation/address.js";
import { openRenaming } from "./rename_dialog.js";
import { openSharing } from "./share_dialog.js";

export class ChatList {
  #list = createElement("ul");
  #more = createButton("Show more", () => this.#loadPage(this.#nextPage));
  #sharedList = createElement("ul");
  #shared = createElement(
    "section",
    { "aria-label": "Shared with you", hidden: true },
    createElement("h2", {}, "Shared with you"),
    this.#sharedList,
  );
  #nextPage = "";
  #waiting = new Set();

  /** `onDeleted(chatId)` runs after a deletion, `onProblem(error)` after a failed request. */
  constructor(element, { onDeleted, onProblem }) {
    this.onDeleted = onDeleted;
    this.onProblem = onProblem;
    this.current = null;
    element.append(this.#list, this.#more, this.#shared);
    this.#more.hidden = true;
  }

  async loadFirstPage() {
    await Promise.all([this.#loadPage(""), this.#loadShared()]);
  }

  /** Show the list, or nothing of it while a search's hits stand in its place. */
  setShown(isShown) {
    this.#list.hidden = !isShown;
    this.#more.hidden = !isShown || !this.#nextPage;
    this.#shared.hidden = !isShown || !this.#sharedList.children.length;
  }

  markCurrent(chatId) {
    this.current = chatId;
    for (const item of this.#items) this.#markItem(item);
  }

  /** Mark the chats of which a run waits for a person. */
  markWaiting(chatIds) {
    this.#waiting = chatIds;
    for (const item of this.#items) this.#markItem(item);
  }

  get #items() {
    return [...this.#list.children, ...this.#sharedList.children];
  }

  async #loadShared() {
    try {
      const chats = await api.listSharedChats();
      this.#sharedList.replaceChildren(...chats.map((chat) => this.#createItem(chat)));
      this.setShown(!this.#list.hidden);
      this.markCurrent(this.current);
    } catch (error) {
      this.onProblem(error);
    }
  }

  async #loadPage(page) {
    try {
      const { data, nextPageToken } = await api.listChats(page);
      const items = data.map((chat) => this.#createItem(chat));
      if (page) this.#list.append(...items);
      else this.#list.replaceChildren(...items);
      this.#nextPage = nextPageToken ?? "";
      this.setShown(!this.#list.hidden);
      this.markCurrent(this.current);
    } catch (error) {
      this.onProblem(error);
    }
  }

  #createItem(chat) {
    const waits = createElement("strong", { class: "waits", hidden: true }, "waits for an answer");
    const isOwn = !chat.access || chat.access === "own";
    const whose = isOwn ? "" : `${chat.owner} · `;
    const about = createElement("small", {}, waits, `${whose}${chat.firstAgentKey} · ${formatDate(chat.updatedAt)}`);
    const open = createElement(
      "a",
      { href: formatHash({ chatId: chat.chatId }) },
      createElement("span", {}, chat.title),
      about,
    );
    if (!isOwn) return createElement("li", { "data-chat-id": chat.chatId }, open);
    const share = createButton("⇄", () => openSharing(chat).catch(this.onProblem), {
      class: "quiet",
      "aria-label": `Share ${chat.title}`,
    });
    const rename = createButton("✎", () => this.#openRenaming(chat), {
      class: "quiet",
      "aria-label": `Rename ${chat.title}`,
    });
    const remove = createButton("×", () => this.#confirmDeletion(chat), {
      class: "quiet",
      "aria-label": `Delete ${chat.title}`,
    });
    return createElement("li", { "data-chat-id": chat.chatId }, open, share, rename, remove);
  }

  #markItem(item) {
    const isCurrent = item.dataset.chatId === this.current;
    const link = item.querySelector("a");
    item.querySelector(".waits").hidden = !this.#waiting.has(item.dataset.chatId);
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }

  #openRenaming({ chatId, title }) {
    openRenaming({
      title,
      act: async (wanted) => {
        await api.renameChat(chatId, wanted);
        await this.loadFirstPage();
      },
    });
  }

  #confirmDeletion({ chatId, title }) {
    openConfirmation({
      title: `Delete “${title}”?`,
      text: "The chat, its log and its files will be deleted permanently.",
      label: "Delete",
      attributes: { class: "danger" },
      act: () => this.#deleteChat(chatId),
    });
  }

  async #deleteChat(chatId) {
    try {
      await api.deleteChat(chatId);
      this.onDeleted(chatId);
    } catch (error) {
      this.onProblem(error);
    }
  }
}
