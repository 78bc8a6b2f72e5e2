// Creates the form for a missing credential: its name, where to get it, and a field that hides its text.

import { createButton, createElement } from "../elements/dom.js";
import { createField } from "../elements/page.js";
import { showText } from "../elements/shown_text.js";
import { submitForm } from "./submission.js";

const PROBLEMS = { missing: "The credential is missing.", refused: "The supplied credential was refused." };

/** Create the form for `need`, a CredentialNeed; `submit(payload)` sends the answer. */
export function createCredentialForm({ name = "", description = "", obtain, problem }, submit) {
  const secret = createElement("input", { type: "password", required: true, maxlength: 1900, autocomplete: "off" });
  const trouble = createElement("p", { role: "alert", class: "problem" });
  const send = (payload) => {
    secret.value = ""; // it is nowhere on the page while it is on its way, nor after
    return submitForm(fieldset, trouble, () => submit(payload));
  };
  const fieldset = createElement(
    "fieldset",
    {},
    createElement("p", {}, showText(`${PROBLEMS[problem] ?? ""} ${description}`.trim())),
    obtain ? createElement("p", {}, "Get it at ", createPlace(obtain)) : null,
    createField(`Credential ${name}`, secret, "Kept in memory for this run only, and never shown."),
    createElement(
      "div",
      { class: "actions" },
      createElement("button", { type: "submit", class: "primary" }, "Submit"),
      createButton("Continue without it", () => send({ decision: "reject" })),
    ),
    trouble,
  );
  const onsubmit = (event) => {
    event.preventDefault();
    send({ decision: "supply", secret: secret.value.trim() });
  };
  return createElement("form", { class: "form credential", autocomplete: "off", onsubmit }, fieldset);
}

function createPlace(obtain) {
  if (!/^https:\/\//.test(obtain)) return showText(obtain);
  return createElement("a", { href: obtain, target: "_blank", rel: "noopener noreferrer" }, showText(obtain));
}
