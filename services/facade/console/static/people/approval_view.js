// Asks whether a call may run: approve it, edit its arguments or reject it, with an optional note to the model.

import { createButton, createElement } from "../elements/dom.js";
import { formatCount, formatTime } from "../elements/format.js";
import { makeArgumentsVisible, SHOWN_CHARS_MAX, showArguments, showText } from "../elements/shown_text.js";
import { parseJson } from "../client/json.js";
import { formatJson } from "../server/json.js";
import { describeAuthor } from "./gate_step.js";
import { submitForm } from "./submission.js";

function describeAnswerers({ anyOf = [], notRequester = false, count = 1 }) {
  return `Can be answered by ${count > 1 ? `${count} of ` : ""}${anyOf.join(" or ")}${notRequester ? ", except the requester" : ""}`;
}

/** Create an element that shows all of a call's arguments, whatever their length. */
export function createArguments(label, value) {
  const text = value === undefined ? "None." : showArguments(formatJson(value));
  return createElement("pre", { class: "arguments", tabindex: 0, role: "group", "aria-label": label }, text);
}

/** Create the button that approves a call and later ones that the same rules ask about, in its run or chat. */
function createGrantButton(scope, view) {
  const title = `Approve, and do not ask again for this tool and rule in this ${scope}`;
  const label = scope === "chat" ? "Approve for this chat (8 h)" : "Approve for this run";
  return createButton(label, () => view.approve({ grant: scope }), { title });
}

export const DECISION_TEXTS = { approve: "Approved", edit: "Approved with other arguments", reject: "Rejected", supply: "Supplied" };

export class ApprovalView {
  /** `ask` is an event approval.ask, or a gate with its steps. `submit(payload)` sends the decision and returns a
   * SubmitResponse; `answerers` is who may decide, if others may; `askBack(note)` asks who has asked for the call, or
   * replies. With `ask.isGrantable` it can be approved for later calls, too. `load()` returns the gate: given where the
   * page may not show all of the arguments, which are then opened before they can be approved. */
  constructor(ask, toolName, params, submit, answerers, askBack, load) {
    this.submit = submit;
    this.load = load;
    this.sha256 = ask.argumentsSha256; // of arguments that are shown whole
    this.approving = createButton("Approve", () => this.#approve(), { class: "primary" });
    this.granting = ask.isGrantable ? [createGrantButton("run", this), createGrantButton("chat", this)] : [];
    this.askBack = askBack;
    this.note = createElement("input", { type: "text", maxlength: 4000, autocomplete: "off" });
    this.arguments = createElement("textarea", { rows: 5, spellcheck: "false" });
    this.arguments.value = makeArgumentsVisible(formatJson(params ?? {}));
    this.editor = createElement("label", { hidden: true }, "Arguments to run with (JSON)", this.arguments);
    this.problem = createElement("p", { role: "alert", class: "problem" });
    this.edit = createElement("div", { hidden: true });
    const chars = Math.max(ask.argumentsChars ?? 0, this.arguments.value.length);
    const isLong = load && (ask.argumentsChars || chars > SHOWN_CHARS_MAX);
    this.opening = isLong ? this.#createOpening(chars) : "";
    this.edited = undefined; // by the last vote that has changed them
    this.sent = undefined;
    this.element = createElement(
      "section",
      { class: "approval", "aria-label": "Approval", "data-risk": ask.risk },
      createElement(
        "p",
        {},
        createElement("strong", {}, `May ${showText(toolName ?? "this tool")} run?`),
        " ",
        createElement("span", { class: "risk" }, `${ask.risk} risk`),
      ),
      createElement("p", {}, `${showText(ask.reason)} · answer by ${formatTime(ask.expiresAt)}`),
      answerers ? createElement("p", {}, describeAnswerers(answerers)) : "",
      this.opening,
      this.edit,
      this.#createForm(),
    );
    const edit = (ask.steps ?? []).findLast((step) => step.arguments);
    if (edit) this.showEdit(edit.arguments);
  }

  get isAnswered() {
    return this.element.dataset.decision !== undefined;
  }

  /** Show the edited arguments of a vote, `args`; from now on, these are approved. */
  showEdit(args) {
    if (this.isAnswered) return;
    const text = formatJson(args);
    const isOwn = text === formatJson(this.sent ?? null);
    this.edited = args;
    this.arguments.value = makeArgumentsVisible(text);
    this.edit.hidden = false;
    this.approving.disabled = false; // all of them are shown
    for (const button of this.granting) button.hidden = true; // these arguments are approved for this call alone
    const label = "Arguments as changed by a vote";
    this.edit.replaceChildren(
      createElement("p", {}, `${label}; an approval applies to these:`),
      createArguments(label, args),
    );
    if (isOwn) return;
    this.problem.textContent = "";
    this.element.querySelector("fieldset").disabled = false; // votes of before do not count any more
  }

  showAnswer({ decision, by, note, credential }) {
    const text = (DECISION_TEXTS[decision] ?? decision) + describeAuthor(by, credential) + (note ? `: ${note}` : "");
    this.element.dataset.decision = decision;
    this.element.replaceChildren(createElement("p", {}, showText(text)));
  }

  #createForm() {
    const reject = createButton("Reject", () => this.submitDecision({ decision: "reject" }));
    const askBack = createButton("Ask or reply", () => this.#askBack(), {
      class: "quiet",
      title: "Send the note to the requester, or to those who can answer",
    });
    return createElement(
      "fieldset",
      {},
      createElement("div", { class: "actions" }, this.approving, ...this.granting, reject),
      this.editor,
      createElement(
        "div",
        { class: "actions" },
        createElement("label", { class: "note" }, "Note for the model", this.note),
        askBack,
        createButton("Edit…", (event) => this.#editArguments(event.target), { class: "quiet" }),
      ),
      this.problem,
    );
  }

  #approve() {
    const isEdited = this.edited !== undefined;
    if (isEdited) this.submitDecision({ decision: "edit", arguments: this.edited });
    else this.approve({});
  }

  /** Approve the arguments as the call has them; `granted` says for which later calls, too. */
  approve(granted) {
    const { sha256 } = this;
    this.submitDecision({ decision: "approve", ...granted, ...(sha256 && { argumentsSha256: sha256 }) });
  }

  /** Create a button that shows arguments too long for the page; they cannot be approved before that. */
  #createOpening(chars) {
    for (const button of [this.approving, ...this.granting]) button.disabled = true;
    const what = `The arguments have ${formatCount(chars, "character")}, some of which are not shown.`;
    const button = createButton("Show all", () => this.#openArguments(button));
    return createElement("div", {}, createElement("p", {}, `${what} Show all of them to approve.`), button);
  }

  async #openArguments(button) {
    button.disabled = true;
    try {
      const gate = await this.load();
      this.sha256 = gate.argumentsSha256;
      this.opening.replaceChildren(createArguments("All arguments", gate.arguments));
      for (const one of [this.approving, ...this.granting]) one.disabled = false;
    } catch (error) {
      this.problem.textContent = error.message;
      button.disabled = false;
    }
  }

  #editArguments(editButton) {
    if (this.editor.hidden) {
      this.editor.hidden = false;
      editButton.textContent = "Approve as edited";
      this.arguments.focus();
      return;
    }
    try {
      const edited = parseJson(this.arguments.value);
      this.submitDecision({ decision: "edit", arguments: edited });
    } catch (error) {
      this.problem.textContent = `The arguments are not valid JSON: ${error.message}`;
      this.arguments.focus();
    }
  }

  async #askBack() {
    const note = this.note.value.trim();
    if (!note) {
      this.problem.textContent = "Enter the question or reply as the note.";
      this.note.focus();
      return;
    }
    try {
      const { status } = await this.askBack(note);
      this.problem.textContent = status === "closed" ? "Too late: the run is no longer waiting." : "Sent; it stays open.";
      this.note.value = "";
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }

  submitDecision(decision) {
    const note = this.note.value.trim();
    const payload = note ? { ...decision, note } : decision;
    this.sent = decision.arguments;
    return submitForm(this.element.querySelector("fieldset"), this.problem, () => this.submit(payload));
  }
}
