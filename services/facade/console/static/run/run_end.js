// The last lines of a run: how it ended, what it cost, and what can be done with it now.

import { announce } from "../elements/announcer.js";
import { button, h } from "../elements/dom.js";
import * as format from "../elements/format.js";
import { soon } from "../elements/redraw.js";

const REASONS = {
  length: "The answer was cut off: it reached its greatest length.",
  content_filter: "The provider's content filter stopped the answer.",
  budget: "The run's budget was used up.",
  steps: "The run reached its greatest number of steps.",
};

export class RunEnd {
  #outcome = h("div");
  #spent = h("span", { class: "spent" });
  #actions = h("span", { class: "actions" });

  constructor(run) {
    this.run = run;
    this.element = h("footer", { class: "end" }, this.#outcome, h("p", {}, this.#spent, this.#actions));
  }

  /** The run is live: what it has spent so far. */
  progress({ usage, budgetLeft }) {
    const parts = [usage && format.usage(usage), budgetLeft && format.budget(budgetLeft)];
    this.#spent.textContent = parts.filter(Boolean).join(" · ");
  }

  /** `end` is the terminal event. */
  show(end) {
    this.#outcome.replaceChildren(...this.#told(end));
    if (end.usage) this.#spent.textContent = format.usage(end.usage);
    this.#offer();
    const outcome = this.#outcome.textContent || "The answer is complete.";
    if (this.run.isLive) soon(() => announce(outcome)); // behind the answer's last paragraph
  }

  /** The connection is gone and no retry has helped, or the run could not be asked for. */
  fail(error) {
    this.#outcome.replaceChildren(this.#problem(error.message, error.code));
    this.#offer();
  }

  #told(end) {
    if (end.type === "run.error") return [this.#problem(end.error.message, end.error.code)];
    if (end.type === "run.cancel") return [h("p", { class: "line notice" }, "Stopped.")];
    return end.finishReason in REASONS ? [h("p", { class: "line notice" }, REASONS[end.finishReason])] : [];
  }

  #problem(message, code) {
    const { message: question, actions } = this.run;
    const again = question ? button("Ask again", () => actions.askAgain(question)) : null;
    return h(
      "div",
      { class: "failure", role: "alert" },
      h("p", {}, message, " ", code ? h("code", {}, code) : ""),
      again,
    );
  }

  #offer() {
    const { run } = this;
    const items = [button("Timeline", () => run.timeline.open(), { class: "quiet" })];
    if (run.runId) items.push(button("Fork from here", () => run.actions.fork(run.runId), { class: "quiet" }));
    this.#actions.replaceChildren(...items);
  }
}
