// Shows a run's last lines: how it ended, what it cost, and what the reader can do next.

import { announceText } from "../elements/announcer.js";
import { createCopyButton } from "../elements/copy.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatBudget, formatUsage } from "../elements/format.js";
import { scheduleForFrame } from "../elements/redraw.js";

const REASONS = {
  length: "The answer was cut off: it reached its maximum length.",
  content_filter: "The provider's content filter stopped the answer.",
  budget: "The run's budget was used up.",
  steps: "The run reached its maximum number of steps.",
  stuck: "The model repeated itself; the answer uses what was known so far.",
};

/** Return whether a message requests a compaction; no model sees it, and no answer follows. */
const isCommand = (message) => /^\s*\/compact(\s|$)/.test(message ?? "");

export class RunEnd {
  #outcome = createElement("div");
  #usage = createElement("span", { class: "spent" });
  #actions = createElement("span", { class: "actions" });

  constructor(run) {
    this.run = run;
    this.element = createElement(
      "footer",
      { class: "end" },
      this.#outcome,
      createElement("p", {}, this.#usage, this.#actions),
    );
  }

  /** Show the usage of the live run so far. */
  showProgress({ usage, budgetLeft }) {
    const parts = [usage && formatUsage(usage), budgetLeft && formatBudget(budgetLeft)];
    this.#usage.textContent = parts.filter(Boolean).join(" · ");
  }

  /** Show how the run ended; `end` is its terminal event. */
  showOutcome(end) {
    this.#outcome.replaceChildren(...this.#describeOutcome(end));
    const version = this.run.agentVersion ? `version ${this.run.agentVersion}` : "";
    if (end.usage) this.#usage.textContent = [formatUsage(end.usage), version].filter(Boolean).join(" · ");
    this.#showActions();
    const outcome = this.#outcome.textContent || "The answer is complete.";
    if (this.run.isLive) scheduleForFrame(() => announceText(outcome)); // after the answer's last paragraph
  }

  /** Show that the connection was lost for good, or that the run could not be started. */
  showFailure(error) {
    this.#outcome.replaceChildren(this.#createProblem(error.message, error.reason));
    this.#showActions();
  }

  #describeOutcome(end) {
    if (end.type === "run.error") return [this.#createProblem(end.error.message, end.error.code)];
    if (end.type === "run.cancel") return [createElement("p", { class: "line notice" }, "Stopped.")];
    return end.finishReason in REASONS ? [createElement("p", { class: "line notice" }, REASONS[end.finishReason])] : [];
  }

  #createProblem(message, code) {
    const { message: question, actions } = this.run;
    const retryButton = question && !actions.isRecorded ? createButton("Ask again", () => actions.askAgain(question)) : null;
    return createElement(
      "div",
      { class: "failure", role: "alert" },
      createElement("p", {}, message, " ", code ? createElement("code", {}, code) : ""),
      retryButton,
    );
  }

  #showActions() {
    const { run } = this;
    const copy = run.answer ? [createCopyButton("Copy answer", () => run.answer)] : [];
    const items = [...copy, createButton("Trace", () => run.trace.openDialog(), { class: "quiet" })];
    if (run.runId && !run.actions.isRecorded) {
      items.push(createButton("Fork from here", () => run.actions.fork(run.runId), { class: "quiet" }));
      if (run.actions.isOwnChat()) {
        items.push(...this.#createOwnerActions());
        run.offerEditing();
      }
    }
    this.#actions.replaceChildren(...items);
  }

  #createOwnerActions() {
    if (isCommand(this.run.message)) return [];
    return [this.#createPinButton("user", "question"), this.#createPinButton("assistant", "answer")];
  }

  #createPinButton(role, name) {
    const { run } = this;
    const button = createButton("", async () => {
      button.disabled = true;
      await run.actions.togglePin(run, role);
      button.disabled = false;
      update();
    });
    button.className = "quiet";
    const update = () => {
      const isPinned = run.actions.isPinned(run, role);
      button.textContent = `${isPinned ? "Unpin" : "Pin"} ${name}`;
    };
    update();
    return button;
  }
}
