// Creates the form by which a person answers what the server of a tool asks: its fields, or an address to visit.

import { createButton, createElement } from "../elements/dom.js";
import { createForm } from "./form_view.js";
import { submitForm } from "./submission.js";

/** Create the form for `ask`, an InputNeed; `submit(payload)` sends the answer. */
export function createAskForm({ server = "", message = "", schema, url }, submit) {
  const trouble = createElement("p", { role: "alert", class: "problem" });
  const send = (payload) => submitForm(fieldset, trouble, () => submit(payload));
  const fieldset = createElement(
    "fieldset",
    { class: "ask" },
    createElement("p", {}, `The server ${server} asks: ${message}`),
    url ? createElement("p", {}, "It sends you to ", createPlace(url)) : createForm("", schema ?? null, {}, submit),
    createElement(
      "div",
      { class: "actions" },
      url ? createButton("I have done it there", () => send({ done: true })) : null,
      createButton("Decline", () => send({ cancelled: true })),
    ),
    trouble,
  );
  return fieldset;
}

function createPlace(url) {
  if (!/^https?:\/\//.test(url)) return url;
  // The whole address is shown: whoever follows it sees where it leads.
  return createElement("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url);
}
