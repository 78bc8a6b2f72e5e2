// Shows what a live run is doing, and for how long, while no text arrives.

import { createElement } from "../elements/dom.js";
import { formatSeconds } from "../elements/format.js";
import { shortenLine, showText } from "../elements/shown_text.js";

const SHOWN_FROM_MS = 2000; // a time that is shorter is not shown
const WAITING = "Waiting for the model";

/** The activity of a run after an event, by event type; none if text shows it, or the run is over. */
const STEPS = {
  "request.query": () => "Queued",
  "run.start": () => WAITING,
  "reasoning.end": () => WAITING,
  "tool.start": ({ toolName }) => `Preparing a call of ${showText(shortenLine(toolName, 60))}`,
  "tool.result": () => WAITING,
  "action.result": () => WAITING,
  "approval.ask": () => "Waiting for a person",
  "approval.answer": () => "Continuing",
  "gate.open": () => "Waiting for a person",
  "gate.close": () => "Continuing",
  "compaction.start": () => "Summarising older messages",
  "compaction.complete": () => WAITING,
  "compaction.fallback": () => WAITING,
  "attempt.reset": () => "Trying again",
};

const CONTINUED = new Set(["tool.args", "tool.output", "gate.step", "content.end", "run.notice", "request.steer"]);

export class StatusLine {
  element = createElement("p", { class: "doing", hidden: true });
  #step = "";
  #running = new Set(); // ids of calls
  #since = 0;

  /** Show the run's activity after an event. */
  apply(event) {
    if (event.type === "tool.end" || event.type === "tool.snapshot") this.#running.add(event.toolId);
    if (event.type === "tool.result") this.#running.delete(event.toolId);
    if (event.type.startsWith("tool.") && this.#running.size) this.show("Running the tool");
    else if (!CONTINUED.has(event.type)) this.show(STEPS[event.type]?.(event) ?? "");
  }

  show(step) {
    if (step === this.#step) return;
    this.#step = step;
    this.#since = Date.now();
    this.refresh();
  }

  /** Show how long the step takes by now. */
  refresh() {
    const ms = Date.now() - this.#since;
    this.element.hidden = !this.#step;
    this.element.textContent = `${this.#step}…${ms < SHOWN_FROM_MS ? "" : ` ${formatSeconds(ms)}`}`;
  }
}
