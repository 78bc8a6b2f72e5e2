// Lists what holds for the user until it is revoked: nothing is shown where there is nothing of the kind.

import { createButton, createElement } from "../elements/dom.js";
import { showText } from "../elements/shown_text.js";

export class RevocableList {
  /**
   * `load` gives what is in force; `describe` says of one its title, what is told about it, and the name of what its
   * button revokes; `revoke` takes it back.
   */
  constructor({ title, load, describe, revoke }) {
    this.load = load;
    this.describe = describe;
    this.revoke = revoke;
    this.list = createElement("ul", { class: "grants" });
    this.problem = createElement("p", { role: "alert", class: "problem" });
    this.element = createElement(
      "section",
      { "aria-label": title, hidden: true },
      createElement("h3", { tabindex: -1 }, title),
      this.list,
      this.problem,
    );
  }

  /** Show what is in force now. */
  async refresh() {
    try {
      const found = await this.load();
      this.problem.textContent = "";
      this.list.replaceChildren(...found.map((one) => this.#createItem(one)));
      this.element.hidden = found.length === 0;
    } catch (error) {
      this.#showProblem(error);
    }
  }

  #createItem(one) {
    const { title, about, name } = this.describe(one);
    return createElement(
      "li",
      {},
      createElement("span", {}, showText(title)),
      createElement("small", {}, showText(about)),
      createButton("Revoke", () => this.#revoke(one), { "aria-label": `Revoke ${name}` }),
    );
  }

  async #revoke(one) {
    try {
      await this.revoke(one);
      await this.refresh();
      if (!this.element.hidden) this.element.querySelector("h3").focus();
    } catch (error) {
      this.#showProblem(error);
    }
  }

  #showProblem(error) {
    this.problem.textContent = error.message;
    this.element.hidden = false;
  }
}
