// A chat to try a definition in, before it is published.

import { createButton, createElement } from "../elements/dom.js";
import { createField } from "../elements/page.js";
import { followRun } from "../events/follow.js";
import { RunView } from "../run/run_view.js";
import * as api from "../server/api.js";

export class Scratch {
  #abort = new AbortController();
  #chatId = null;

  /** `read()` returns the edited {agentKey, definition}; it throws if the definition cannot be tried. */
  constructor(read) {
    this.read = read;
    this.runs = createElement("div", { class: "scratch" });
    this.message = createElement("input", { type: "text", required: true, maxlength: 100_000, autocomplete: "off" });
    this.problem = createElement("p", { class: "problem", role: "alert", hidden: true });
    this.element = createElement(
      "details",
      { class: "folded" },
      createElement("summary", {}, "Try it"),
      createElement(
        "p",
        { class: "about" },
        "A private chat with this draft of the agent. Others cannot use it until you publish it.",
      ),
      this.runs,
      createElement(
        "form",
        { class: "form", onsubmit: (event) => this.#ask(event) },
        createField("Message", this.message),
        createElement(
          "div",
          { class: "actions" },
          createElement("button", { type: "submit", class: "primary" }, "Ask"),
          createButton("New chat", () => this.reset()),
        ),
        this.problem,
      ),
    );
  }

  /** Leave the chat, and stop following its run. */
  reset() {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#chatId = null;
    this.runs.replaceChildren();
    this.#showProblem(null);
  }

  async #ask(event) {
    event.preventDefault();
    this.#showProblem(null);
    const { signal } = this.#abort;
    let run = null;
    try {
      const { agentKey, definition } = this.read();
      this.#chatId ??= api.createId();
      const message = this.message.value;
      run = this.#addRun(message);
      this.message.value = "";
      const query = { message, agentKey, chatId: this.#chatId, requestId: api.createId(), trial: { definition } };
      await followRun(query, { onEvent: (event) => run.apply(event), onLost() {}, signal });
    } catch (error) {
      if (run) run.end.showFailure(error);
      else this.#showProblem(error);
    }
  }

  #addRun(message) {
    const run = new RunView({
      submit: (body) => api.submitPayload({ ...body, chatId: this.#chatId }),
      isRecorded: true, // the chat has no earlier state to return to
    });
    run.showQuestion({ message });
    this.runs.append(run.element);
    return run;
  }

  #showProblem(error) {
    this.problem.hidden = !error;
    this.problem.textContent = error ? error.message : "";
  }
}
