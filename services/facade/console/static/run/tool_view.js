// One call of a tool or action: its name and state on one line; arguments, output and result below it.

import { h, hidden } from "../elements/dom.js";
import { short } from "../elements/format.js";
import { soon } from "../elements/redraw.js";
import { pretty, prettyText } from "../server/json.js";
import { PlainText } from "../elements/plain_text.js";

const STATES = { writing: "is being called", running: "running", done: "done", failed: "failed" };
const OUTPUT_CHARS_MAX = 200_000; // kept in memory; the whole of a long output is an artifact

export class ToolView {
  #state = h("span", { class: "state" });
  #name = h("strong", {}, "tool");
  #gist = h("span", { class: "gist" });
  #sections = h("div", { class: "sections" });
  #parts = new Map(); // title → PlainText
  #args = "";
  #output = "";
  #drawnArgs = "";
  #draw = () => this.#drawAll();

  constructor() {
    this.people = h("div", { class: "people" }); // forms and approvals: always in sight
    const line = h("summary", {}, this.#state, this.#name, " ", this.#gist);
    this.element = h("div", { class: "tool" }, h("details", {}, line, this.#sections), this.people);
    this.#setState("writing");
  }

  begin(block, event) {
    this.block = block;
    this.#name.textContent = block.name ?? "tool";
    if (event.description) this.#name.title = event.description;
    this.#args = this.#output = this.#drawnArgs = "";
    this.result = undefined;
    this.#parts.clear();
    this.#sections.replaceChildren();
    const args = event.toolParams ?? event.arguments;
    if (args !== undefined) this.#args = pretty(args);
    this.#setState(event.type.endsWith(".snapshot") ? "running" : "writing");
    soon(this.#draw);
  }

  addArguments(delta) {
    this.#args += delta;
    soon(this.#draw);
  }

  setArguments(value) {
    if (value !== undefined) this.#args = pretty(value);
    this.#setState("running");
    soon(this.#draw);
  }

  addOutput(delta) {
    this.#output = (this.#output + delta).slice(-OUTPUT_CHARS_MAX);
    this.unfold();
    soon(this.#draw);
  }

  /** Show arguments and output: they are being waited for, or to be judged. */
  unfold() {
    this.#sections.parentElement.open = true;
  }

  end(event) {
    this.result = event.result;
    this.#setState(event.ok === false ? "failed" : "done");
    // What was decided stays; what was asked and not answered is over.
    this.people.replaceChildren(...this.people.querySelectorAll("[data-decision]"));
    soon(this.#draw);
  }

  #setState(state) {
    this.element.dataset.state = state;
    this.#state.replaceChildren(hidden(`${STATES[state]}: `));
  }

  #drawAll() {
    if (this.#args !== this.#drawnArgs) {
      this.#drawnArgs = this.#args;
      this.#gist.textContent = short(this.#args.replace(/^\{\s*|\s*\}$/g, ""), 120);
      this.#section("Arguments").draw(prettyText(this.#args));
    }
    if (this.#output) this.#section("Output").draw(this.#output);
    if (this.result !== undefined) this.#section("Result").draw(prettyText(this.result));
  }

  #section(title) {
    if (!this.#parts.has(title)) {
      const text = new PlainText(h("pre", { tabindex: "0", role: "group", "aria-label": title }));
      this.#parts.set(title, text);
      this.#sections.append(h("h3", {}, title), text.element);
    }
    return this.#parts.get(title);
  }
}
