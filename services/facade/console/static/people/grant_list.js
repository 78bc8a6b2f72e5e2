// Lists the approvals that hold for later calls, and where to revoke them.

import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import * as api from "../server/api.js";

const LISTED_MAX = 50;

export class GrantList {
  constructor() {
    this.list = createElement("ul", { class: "grants" });
    this.problem = createElement("p", { role: "alert", class: "problem" });
    this.element = createElement(
      "section",
      { "aria-label": "Approved ahead", hidden: true },
      createElement("h3", { tabindex: -1 }, "Approved ahead"),
      this.list,
      this.problem,
    );
  }

  /** Show what is in force now. */
  async refresh() {
    try {
      const grants = await api.listGrants({ pageSize: LISTED_MAX });
      this.problem.textContent = "";
      this.list.replaceChildren(...grants.map((grant) => this.#createItem(grant)));
      this.element.hidden = grants.length === 0;
    } catch (error) {
      this.#showProblem(error);
    }
  }

  #createItem(grant) {
    const { chatId, grantId, scope, toolName, grounds, requester, madeBy, expiresAt } = grant;
    const lasts = expiresAt ? `until ${formatDate(expiresAt)}` : "until its run ends";
    return createElement(
      "li",
      {},
      createElement("span", {}, `${toolName}, for a ${scope} of ${requester}`),
      createElement("small", {}, `${grounds.join("; ")} · by ${madeBy.join(", ")} · ${lasts}`),
      createButton("Revoke", () => this.#revoke({ chatId, grantId }), { "aria-label": `Revoke ${toolName}` }),
    );
  }

  async #revoke(grant) {
    try {
      await api.revokeGrant(grant);
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
