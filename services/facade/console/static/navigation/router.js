// Shows one page at a time: the chats, or a page whose module and styles are loaded when it is opened first.

import { createElement } from "../elements/dom.js";
import { formatPageHash, getChatsHash, readAddress, watchAddress } from "./address.js";
import { setPageTitle } from "./title.js";

const STYLES = ["pages.css", "spend.css"];

export class Router {
  #pages = new Map(); // by name: pages that were opened, or are being loaded
  #name = null;
  #shown = null;

  /**
   * `catalogue` has each page's name for people, the scope that it needs if any, and its loader: load() gives a module with createPage(), which gives
   * { element, show(parameters), hide() }. `chats` are the elements of the chats, `place` is where pages stand;
   * `openChats(isReturn)` runs when the chats are addressed. createPage() gets `context`.
   */
  constructor({ catalogue, context, list, chats, place, openChats }) {
    this.catalogue = catalogue;
    this.context = context;
    this.list = list;
    this.chats = chats;
    this.place = place;
    this.openChats = openChats;
    this.#fillList();
    watchAddress(() => this.open());
  }

  /** Show what the address says. */
  async open() {
    const { page, parameters } = readAddress();
    const name = Object.hasOwn(this.catalogue, page) ? page : "";
    const before = this.#name;
    if (before !== name) this.#enterPage(name);
    if (!name) return this.openChats(before !== name && before !== null);
    const opened = await this.#loadPage(name);
    if (this.#name !== name) return undefined; // another one was opened meanwhile
    if (this.#shown !== opened) {
      this.#shown = opened;
      this.place.replaceChildren(opened.element);
      if (before !== null) opened.element.querySelector("h2").focus();
    }
    return opened.show(parameters);
  }

  /** Show a count behind a page's name in the list; an empty text shows none. */
  setCount(page, count) {
    const link = this.list.querySelector(`[data-page="${page}"]`);
    const text = count && [" ", createElement("span", { class: "count" }, count)];
    link.replaceChildren(this.catalogue[page].name, ...(text || []));
    this.#scrollList();
  }

  /** Show the links of pages that need a scope to who has it. */
  setScopes(scopes) {
    for (const [page, { scope }] of Object.entries(this.catalogue)) {
      this.list.querySelector(`[data-page="${page}"]`).parentElement.hidden = Boolean(scope) && !scopes.includes(scope);
    }
    this.#scrollList();
  }

  /** Keep the current page's link in sight where the list is wider than the window. */
  #scrollList() {
    this.list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  #enterPage(name) {
    this.#shown?.hide();
    this.#shown = null;
    this.#name = name;
    for (const element of this.chats) element.hidden = Boolean(name);
    this.place.hidden = !name;
    this.place.replaceChildren();
    setPageTitle(this.catalogue[name]?.name ?? "");
    for (const link of this.list.querySelectorAll("a")) {
      if (link.dataset.page === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.#scrollList();
  }

  async #loadPage(name) {
    if (!this.#pages.has(name)) this.#pages.set(name, createPage(this.catalogue[name], this.context));
    try {
      return await this.#pages.get(name);
    } catch (error) {
      this.#pages.delete(name); // the next time may find the server again
      return createFailure(this.catalogue[name], error);
    }
  }

  #fillList() {
    const chats = createElement("a", { href: "#", "data-page": "" }, "Chats");
    // The way back leads to the chat that was shown last; it is known when the link is followed.
    for (const event of ["focus", "pointerenter", "click"]) {
      chats.addEventListener(event, () => chats.setAttribute("href", getChatsHash()));
    }
    const pages = Object.entries(this.catalogue).map(([page, { name }]) =>
      createElement("a", { href: formatPageHash(page), "data-page": page }, name),
    );
    this.list.replaceChildren(...[chats, ...pages].map((link) => createElement("li", {}, link)));
    this.setScopes([]);
  }
}

async function createPage({ load }, context) {
  const [module] = await Promise.all([load(), ...STYLES.map(loadStyles)]);
  return module.createPage(context);
}

function createFailure({ name }, error) {
  const text = createElement("p", { class: "problem", role: "alert" }, `The page could not be loaded: ${error.message}`);
  const element = createElement("section", { class: "page" }, createElement("h2", { tabindex: -1 }, name), text);
  return { element, show() {}, hide() {} };
}

function loadStyles(name) {
  const href = `/console/styles/${name}`;
  if ([...document.styleSheets].some((sheet) => sheet.href?.endsWith(href))) return undefined;
  return new Promise((resolve, reject) => {
    const onerror = (event) => {
      event.target.remove();
      reject(new Error("its styles are missing"));
    };
    document.head.append(createElement("link", { rel: "stylesheet", href, onload: resolve, onerror }));
  });
}
