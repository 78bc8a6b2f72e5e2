// Shows one page at a time: the chats, or a page whose module and styles are loaded when it is opened first.

import { createElement } from "../elements/dom.js";
import { createIcon } from "../elements/icon.js";
import { formatPageHash, getChatsHash, readAddress, watchAddress } from "./address.js";
import { setPageTitle } from "./title.js";

const STYLES = ["pages.css", "spend.css"];
const OPENED = "headrace.operate"; // whether the user has the second group of links open

export class Router {
  #pages = new Map(); // by name: pages that were opened, or are being loaded
  #name = null;
  #shown = null;
  #work = createElement("ul");
  #operate = createElement("ul");
  #group = createElement(
    "details",
    { open: localStorage.getItem(OPENED) === "true" },
    createElement("summary", {}, createIcon("operate"), "Operate"),
    this.#operate,
  );

  /**
   * `catalogue` has each page's name for people, the scope that it needs if any, and its loader: load() gives a module with createPage(), which gives
   * { element, show(parameters), hide() }. `navigation` is where the links go, `chats` are the elements of the chats, `place` is where pages go;
   * `openChats(isReturn)` runs when the chats are addressed. createPage() gets `context`.
   */
  constructor({ catalogue, context, navigation, chats, place, openChats }) {
    this.catalogue = catalogue;
    this.context = context;
    this.navigation = navigation;
    this.chats = chats;
    this.place = place;
    this.openChats = openChats;
    this.#fillNavigation();
    watchAddress(() => this.open());
  }

  /** Show the page of the address. */
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

  /** Show a count after a page's name in the list; an empty text shows none. */
  setCount(page, count) {
    const link = this.navigation.querySelector(`[data-page="${page}"]`);
    link.querySelector(".count")?.remove();
    if (count) link.append(" ", createElement("span", { class: "count" }, count));
  }

  /** Show links to pages that need a scope only to users who have it. */
  setScopes(scopes) {
    for (const [page, { scope }] of Object.entries(this.catalogue)) {
      const item = this.navigation.querySelector(`[data-page="${page}"]`).parentElement;
      item.hidden = Boolean(scope) && !scopes.includes(scope);
    }
  }

  #enterPage(name) {
    this.#shown?.hide();
    this.#shown = null;
    this.#name = name;
    for (const element of this.chats) element.hidden = Boolean(name);
    this.place.hidden = !name;
    this.place.replaceChildren();
    setPageTitle(this.catalogue[name]?.name ?? "");
    for (const link of this.navigation.querySelectorAll("a")) {
      if (link.dataset.page === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (this.#operate.querySelector("[aria-current]")) this.#group.open = true;
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

  #fillNavigation() {
    const chats = createElement("a", { href: "#", "data-page": "" }, createIcon("chats"), "Chats");
    // The way back leads to the chat that was shown last; it is known when the link is followed.
    for (const event of ["focus", "pointerenter", "click"]) {
      chats.addEventListener(event, () => chats.setAttribute("href", getChatsHash()));
    }
    this.#work.append(createElement("li", {}, chats));
    for (const [page, { name, isWork }] of Object.entries(this.catalogue)) {
      const icon = isWork ? createIcon(page) : "";
      const link = createElement("a", { href: formatPageHash(page), "data-page": page }, icon, name);
      (isWork ? this.#work : this.#operate).append(createElement("li", {}, link));
    }
    this.#group.addEventListener("toggle", () => localStorage.setItem(OPENED, this.#group.open));
    this.navigation.append(this.#work, this.#group);
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
