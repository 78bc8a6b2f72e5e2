// A field for a list of names, which are chosen from those that there are.

import { createElement } from "../elements/dom.js";

/** Has the `value` of an input, names with commas between; names that are not offered stay chosen until they are taken out. */
export class Picker {
  #offered = []; // [name, description]
  #names = [];

  constructor(label, oninput, describedBy) {
    this.oninput = oninput;
    this.list = createElement("div", { class: "names" });
    const legend = createElement("legend", {}, label);
    this.element = createElement("fieldset", { class: "checks picker", "aria-describedby": describedBy }, legend, this.list);
    this.#draw();
  }

  get value() {
    return this.#names.join(", ");
  }

  set value(text) {
    if (text === this.value) return;
    this.#names = text.split(/[\s,]+/).filter(Boolean);
    this.#draw();
  }

  set disabled(isDisabled) {
    this.element.disabled = isDisabled;
  }

  setInvalid(isInvalid) {
    this.element.classList.toggle("invalid", isInvalid);
  }

  /** Offer items, each with a name and a description. */
  offer(items) {
    this.#offered = items;
    this.#draw();
  }

  #draw() {
    const known = new Set(this.#offered.map(([name]) => name));
    const foreign = this.#names.filter((name) => !known.has(name)).map((name) => [name, "not in the list of this server"]);
    const checks = [...this.#offered, ...foreign].map(([name, about]) => this.#createCheck(name, about));
    this.list.replaceChildren(...(checks.length ? checks : [createElement("small", {}, "There are none.")]));
  }

  #createCheck(name, about) {
    const onchange = ({ target }) => {
      this.#names = target.checked ? [...this.#names, name] : this.#names.filter((other) => other !== name);
      this.oninput();
    };
    const box = createElement("input", { type: "checkbox", checked: this.#names.includes(name), onchange });
    return createElement("label", { class: "check", title: about }, box, name, about ? createElement("small", {}, about) : null);
  }
}
