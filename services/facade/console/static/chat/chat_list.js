// Lists the chats, newest first, a page at a time, and those that others share; renames, shares and deletes one's own.

import * as api from "../server/api.js";
import { openConfirmation } from "../elements/confirm.js";
import { openForm } from "../elements/dialog.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate, formatDay } from "../elements/format.js";
import { createIcon } from "../elements/icon.js";
import { formatHash } from "../navigation/address.js";
import { openSharing } from "./share_dialog.js";

const TITLE_CODE_UNITS_MAX = 100; // up to 400 bytes, which is what the server takes

export class ChatList {
  #list = createElement("div");
  #more = createButton("Show more", () => this.#loadPage(this.#nextPage));
  #shared = createElement("div", { role: "region", "aria-label": "Shared with you" });
  #chats = []; // those of the pages so far
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

  /** Show the list, or nothing of it while a search's hits are in its place. */
  setShown(isShown) {
    this.#list.hidden = !isShown;
    this.#more.hidden = !isShown || !this.#nextPage;
    this.#shared.hidden = !isShown || !this.#shared.children.length;
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
    return [this.#list, this.#shared].flatMap((list) => [...list.querySelectorAll("li")]);
  }

  async #loadShared() {
    try {
      this.#show(this.#shared, await api.listSharedChats(), () => "Shared with you");
    } catch (error) {
      this.onProblem(error);
    }
  }

  async #loadPage(page) {
    try {
      const { data, nextPageToken } = await api.listChats(page);
      this.#chats = page ? [...this.#chats, ...data] : data;
      this.#nextPage = nextPageToken ?? "";
      this.#show(this.#list, this.#chats, ({ updatedAt }) => formatDay(updatedAt));
    } catch (error) {
      this.onProblem(error);
    }
  }

  /** Show chats below headings; those that `getHeading` gives one after the other have one in common. */
  #show(place, chats, getHeading) {
    place.replaceChildren();
    let heading = "";
    for (const chat of chats) {
      if (getHeading(chat) !== heading) {
        heading = getHeading(chat);
        place.append(createElement("h2", {}, heading), createElement("ul"));
      }
      place.lastChild.append(this.#createItem(chat));
    }
    this.setShown(!this.#list.hidden);
    this.markCurrent(this.current);
  }

  #createItem(chat) {
    const { chatId, title } = chat;
    const waits = createElement("strong", { class: "waits", hidden: true }, "waits for an answer");
    const isOwn = !chat.access || chat.access === "own";
    const whose = isOwn ? "" : `${chat.owner} · `;
    const about = createElement("small", {}, waits, `${whose}${chat.firstAgentKey} · ${formatDate(chat.updatedAt)}`);
    const open = createElement("a", { href: formatHash({ chatId }), title }, createElement("span", {}, title), about);
    const createTool = (icon, verb, act) => {
      const button = createButton("", act, { class: "quiet", "aria-label": `${verb} ${title}`, title: verb });
      button.append(createIcon(icon));
      return button;
    };
    const tools = isOwn && [
      createTool("share", "Share", () => openSharing(chat).catch(this.onProblem)),
      createTool("edit", "Rename", () => this.#openRenaming(chat)),
      createTool("remove", "Delete", () => this.#confirmDeletion(chat)),
    ];
    const row = tools && createElement("span", { class: "tools" }, ...tools);
    return createElement("li", { "data-chat-id": chatId }, open, ...(row ? [row] : []));
  }

  #markItem(item) {
    const isCurrent = item.dataset.chatId === this.current;
    const link = item.querySelector("a");
    item.querySelector(".waits").hidden = !this.#waiting.has(item.dataset.chatId);
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }

  #openRenaming({ chatId, title }) {
    const input = createElement("input", { id: "title", maxlength: TITLE_CODE_UNITS_MAX, autocomplete: "off" });
    input.value = title;
    openForm({
      id: "rename-title",
      title: "Rename chat",
      fields: [createElement("label", { for: "title" }, "Title (empty: the first words of the chat)"), input],
      leave: "Cancel",
      submit: "Rename",
      save: () => api.renameChat(chatId, input.value),
      onSaved: () => this.loadFirstPage(),
    });
    input.select();
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
