// Shows secrets, which the server returns only once.

import { createButton, createElement } from "./dom.js";

/** Create the place for a page's secrets. `show(about, texts)` shows texts by their labels, the secret last, until they
 * are kept; then the focus is on what `getNext()` returns. */
export function createSecretBox(getNext) {
  const element = createElement("div", { role: "status" });

  function show(about, texts) {
    const fields = Object.entries(texts).map(([label, text]) => {
      const field = createElement("input", { type: "text", readonly: "", "aria-label": label });
      field.value = text;
      field.addEventListener("focus", () => field.select());
      return field;
    });
    const close = () => {
      element.replaceChildren();
      getNext().focus();
    };
    const parts = [createElement("p", {}, about), ...fields, createButton("I have saved it", close)];
    element.replaceChildren(createElement("div", { class: "secret" }, ...parts));
    fields.at(-1).focus();
  }

  return { element, show };
}
