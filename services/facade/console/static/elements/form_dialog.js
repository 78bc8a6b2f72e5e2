// A dialog with a form, which is saved or left.

import { createButton, createElement } from "./dom.js";

/**
 * Open a dialog with `fields` in a form, after what is `above`. `save()` stores them, and what it throws is shown in the
 * dialog; `onSaved()` runs once it is closed. `leave` and `submit` are the words of its buttons.
 */
export function openForm({ id, title, above = [], fields, leave, submit, isDanger, save, onSaved }) {
  const problem = createElement("p", { class: "problem", role: "alert", hidden: true });
  const onsubmit = async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      await save();
      dialog.close();
      onSaved?.();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  };
  const actions = createElement(
    "div",
    { class: "actions" },
    createButton(leave, () => dialog.close()),
    createElement("button", { type: "submit", class: isDanger ? "danger" : "primary" }, submit),
  );
  const dialog = createElement(
    "dialog",
    { "aria-labelledby": id },
    createElement("h2", { id }, title),
    ...above,
    createElement("form", { onsubmit }, ...fields, createElement("footer", { class: "foot" }, problem, actions)),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
