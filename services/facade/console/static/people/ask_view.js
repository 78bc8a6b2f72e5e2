// Creates the form for a question by a tool's server: its fields, or an address to visit.

import { createButton, createElement } from "../elements/dom.js";
import { showText } from "../elements/shown_text.js";
import { createForm } from "./form_view.js";
import { submitForm } from "./submission.js";

/** Create the form for `ask`, an InputNeed; `submit(payload)` sends the answer. */
export function createAskForm({ server = "", message = "", schema, url, authorizes }, submit) {
  const trouble = createElement("p", { role: "alert", class: "problem" });
  const send = (payload) => submitForm(fieldset, trouble, () => submit(payload));
  const fieldset = createElement(
    "fieldset",
    { class: "ask" },
    createElement("p", {}, showText(`The server ${server} asks: ${message}`)),
    url
      ? createElement("p", {}, "Open ", createPlace(url, authorizes))
      : createForm("", schema ?? null, {}, submit),
    createElement(
      "div",
      { class: "actions" },
      url ? createButton("Done", () => send({ done: true })) : null,
      createButton("Decline", () => send({ cancelled: true })),
    ),
    trouble,
  );
  return fieldset;
}

function createPlace(url, authorizes) {
  if (!/^https?:\/\//.test(url)) return showText(url);
  // Of an authorization's address the rest is for machines. It stays in the tab, which alone has the user's credential.
  if (authorizes) return createElement("a", { href: url, rel: "noreferrer" }, new URL(url).origin);
  return createElement("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, showText(url));
}
