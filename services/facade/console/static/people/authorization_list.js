// Lists the MCP servers that Headrace may use for the user, and where to take that back.

import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import * as api from "../server/api.js";

export class AuthorizationList {
  constructor() {
    this.list = createElement("ul", { class: "grants" });
    this.problem = createElement("p", { role: "alert", class: "problem" });
    this.element = createElement(
      "section",
      { "aria-label": "Authorized servers", hidden: true },
      createElement("h3", { tabindex: -1 }, "Authorized servers"),
      this.list,
      this.problem,
    );
  }

  /** Show what is authorized now. */
  async refresh() {
    try {
      const authorizations = await api.listAuthorizations();
      this.problem.textContent = "";
      this.list.replaceChildren(...authorizations.map((one) => this.#createItem(one)));
      this.element.hidden = authorizations.length === 0;
    } catch (error) {
      this.#showProblem(error);
    }
  }

  #createItem({ server, issuer, authorizedAt, expiresAt, renewable, inUse }) {
    const lasts = expiresAt && !renewable ? ` · until ${formatDate(expiresAt)}` : "";
    return createElement(
      "li",
      {},
      createElement("span", {}, inUse ? server : `${server}, which is not in use`),
      createElement("small", {}, `by ${issuer} · since ${formatDate(authorizedAt)}${lasts}`),
      createButton("Revoke", () => this.#revoke(server), { "aria-label": `Revoke ${server}` }),
    );
  }

  async #revoke(server) {
    try {
      await api.revokeAuthorization(server);
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
