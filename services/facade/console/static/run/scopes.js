// Gives the run itself, each sub-agent and each plan task a place of its own, because parallel ones interleave in time.

import { createElement } from "../elements/dom.js";

export class Scopes {
  #scopes = new Map();

  constructor(body) {
    this.#scopes.set("/", { body });
  }

  /** Return the element that holds the views of an event's scope. */
  getBody({ subagentId = "", taskId = "" }) {
    const key = `${subagentId}/${taskId}`;
    if (!this.#scopes.has(key)) {
      if (taskId) this.openScope({ subagentId, taskId }, { subagentId }, "Task", taskId);
      else this.openScope({ subagentId }, {}, "Sub-agent", subagentId);
    }
    return this.#scopes.get(key).body;
  }

  /** Create the scope of `at` in the scope of `parent`; an existing one gets the new title. */
  openScope(at, parent, kind, title, goal = "") {
    const key = `${at.subagentId ?? ""}/${at.taskId ?? ""}`;
    const scope = this.#scopes.get(key) ?? this.#createScope(key, parent);
    scope.summary.replaceChildren(
      createElement("span", { class: "kind" }, kind),
      createElement("strong", {}, title),
      " ",
      scope.outcome,
    );
    scope.goal.textContent = goal;
    scope.element.dataset.state = "running";
    scope.element.open = true;
  }

  /** Mark a scope as done, with its outcome in its line. */
  closeScope(at, isOk, outcome = "") {
    const scope = this.#scopes.get(`${at.subagentId ?? ""}/${at.taskId ?? ""}`);
    if (!scope?.element) return;
    scope.element.dataset.state = isOk ? "done" : "failed";
    scope.outcome.textContent = outcome;
    scope.element.open = !isOk;
  }

  #createScope(key, parent) {
    const scope = {
      summary: createElement("summary"),
      outcome: createElement("span", { class: "gist" }),
      goal: createElement("p", { class: "goal" }),
      body: createElement("div", { class: "flow" }),
    };
    scope.element = createElement("details", { class: "lane" }, scope.summary, scope.goal, scope.body);
    this.getBody(parent).append(scope.element);
    this.#scopes.set(key, scope);
    return scope;
  }
}
