// A question whether a call may run: approve, edit its arguments, or reject, each with a note to the model if wanted.

import { button, h } from "../elements/dom.js";
import { atTime } from "../elements/format.js";
import { parse, pretty } from "../server/json.js";
import { sending } from "./submission.js";

const DECIDED = { approve: "Approved", edit: "Approved with other arguments", reject: "Rejected" };

export class ApprovalView {
  /** `submit(payload)` sends the decision and gives what became of it. */
  constructor(ask, toolName, params, submit) {
    this.submit = submit;
    this.note = h("input", { type: "text", maxlength: 4000, autocomplete: "off" });
    this.arguments = h("textarea", { rows: 5, spellcheck: "false" });
    this.arguments.value = pretty(params ?? {});
    this.editor = h("label", { hidden: true }, "Arguments to run with (JSON)", this.arguments);
    this.problem = h("p", { role: "alert", class: "problem" });
    this.element = h(
      "section",
      { class: "approval", "aria-label": "Approval", "data-risk": ask.risk },
      h(
        "p",
        {},
        h("strong", {}, `May ${toolName ?? "this tool"} run?`),
        " ",
        h("span", { class: "risk" }, `${ask.risk} risk`),
      ),
      h("p", {}, `${ask.reason} · answer by ${atTime(ask.expiresAt)}`),
      this.#form(),
    );
  }

  get isAnswered() {
    return this.element.dataset.decision !== undefined;
  }

  answered({ decision, by, note }) {
    const who = by ? ` by ${by}` : "";
    this.element.dataset.decision = decision;
    this.element.replaceChildren(h("p", {}, (DECIDED[decision] ?? decision) + who + (note ? `: ${note}` : "")));
  }

  #form() {
    const actions = h(
      "div",
      { class: "actions" },
      button("Approve", () => this.#decide({ decision: "approve" }), { class: "primary" }),
      button("Edit…", (event) => this.#edit(event.target)),
      button("Reject", () => this.#decide({ decision: "reject" })),
    );
    return h("fieldset", {}, this.editor, h("label", {}, "Note to the model", this.note), actions, this.problem);
  }

  #edit(editButton) {
    if (this.editor.hidden) {
      this.editor.hidden = false;
      editButton.textContent = "Approve as edited";
      this.arguments.focus();
      return;
    }
    try {
      const edited = parse(this.arguments.value);
      this.#decide({ decision: "edit", arguments: edited });
    } catch (error) {
      this.problem.textContent = `The arguments are no valid JSON: ${error.message}`;
      this.arguments.focus();
    }
  }

  #decide(decision) {
    const note = this.note.value.trim();
    const payload = note ? { ...decision, note } : decision;
    return sending(this.element.querySelector("fieldset"), this.problem, () => this.submit(payload));
  }
}
