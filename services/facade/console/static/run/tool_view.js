// Shows a call of a tool or action: its name, arguments and result on a line each; opened, all of them.

import { createElement, createHiddenText } from "../elements/dom.js";
import { scheduleForFrame } from "../elements/redraw.js";
import { formatJson, formatJsonText } from "../server/json.js";
import { PlainText } from "../elements/plain_text.js";
import { shortenLine, showArguments, showText } from "../elements/shown_text.js";

const STATES = { writing: "being called", running: "running", done: "done", failed: "failed" };
const OUTPUT_CHARS_MAX = 200_000; // kept in memory; a longer output is an artifact

export class ToolView {
  #state = createElement("span", { class: "state" });
  #name = createElement("strong", {}, "tool");
  #argumentsGist = createElement("span", { class: "gist" });
  #resultGist = createElement("span", { class: "gist came", hidden: true });
  #sections = createElement("div", { class: "sections" });
  #parts = new Map(); // title → PlainText
  #arguments = "";
  #output = "";
  #drawnArguments = "";
  #wasExpanded = false;
  #drawCallback = () => this.#drawSections();

  constructor() {
    this.prompts = createElement("div", { class: "people" }); // forms and approvals, always in sight
    const line = createElement("summary", {}, this.#state, this.#name, " ", this.#argumentsGist, this.#resultGist);
    this.element = createElement(
      "div",
      { class: "tool" },
      createElement("details", {}, line, this.#sections),
      this.prompts,
    );
    this.#setState("writing");
  }

  beginCall(block, event) {
    this.block = block;
    this.#name.textContent = showText(block.name || "tool");
    if (event.description) this.#name.title = event.description;
    this.#arguments = this.#output = this.#drawnArguments = "";
    this.result = undefined;
    this.#parts.clear();
    this.#sections.replaceChildren();
    this.#resultGist.hidden = true;
    const callArguments = event.toolParams ?? event.arguments;
    if (callArguments !== undefined) this.#arguments = formatJson(callArguments);
    this.#setState(event.type.endsWith(".snapshot") ? "running" : "writing");
    scheduleForFrame(this.#drawCallback);
  }

  addArguments(delta) {
    this.#arguments += delta;
    scheduleForFrame(this.#drawCallback);
  }

  setArguments(value) {
    if (value !== undefined) this.#arguments = formatJson(value);
    this.#setState("running");
    scheduleForFrame(this.#drawCallback);
  }

  addOutput(delta) {
    this.#output = (this.#output + delta).slice(-OUTPUT_CHARS_MAX);
    this.expand();
    scheduleForFrame(this.#drawCallback);
  }

  /** Show arguments and output, because someone waits for them or has to judge them. */
  expand() {
    this.#wasExpanded ||= !this.#sections.parentElement.open;
    this.#sections.parentElement.open = true;
  }

  showResult(event) {
    this.result = event.result;
    if (this.#wasExpanded) this.#sections.parentElement.open = false;
    this.#setState(event.ok === false ? "failed" : "done");
    // Decisions stay in sight; questions without an answer are over.
    this.prompts.replaceChildren(...this.prompts.querySelectorAll("[data-decision]"));
    scheduleForFrame(this.#drawCallback);
  }

  #setState(state) {
    this.element.dataset.state = state;
    this.#state.replaceChildren(createHiddenText(`${STATES[state]}: `));
  }

  #drawSections() {
    if (this.#arguments !== this.#drawnArguments) {
      this.#drawnArguments = this.#arguments;
      this.#argumentsGist.textContent = showText(shortenLine(this.#arguments.replace(/^\{\s*|\s*\}$/g, ""), 120));
      this.#getSection("Arguments").draw(showArguments(formatJsonText(this.#arguments)));
    }
    if (this.#output) this.#getSection("Output").draw(this.#output);
    if (this.result === undefined) return;
    this.#resultGist.textContent = showText(shortenLine(this.result, 160)) || "no result";
    this.#resultGist.hidden = false;
    if (!this.#output || !this.#repeatsOutput()) this.#getSection("Result").draw(formatJsonText(this.result));
  }

  /** Return whether the result is equal to the output. */
  #repeatsOutput() {
    return this.result.trim() === this.#output.trim();
  }

  #getSection(title) {
    if (!this.#parts.has(title)) {
      const text = new PlainText(createElement("pre", { tabindex: "0", role: "group", "aria-label": title }));
      this.#parts.set(title, text);
      this.#sections.append(createElement("h3", {}, title), text.element);
    }
    return this.#parts.get(title);
  }
}
