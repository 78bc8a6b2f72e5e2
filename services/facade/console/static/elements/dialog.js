// Opens dialogs: each has a heading, and leaves the page when it is closed.

import { createButton, createElement } from "./dom.js";

/** Open a dialog below its heading `title`; `children` may be made by a function of the dialog. */
export function openDialog({ id, title, className }, makeChildren) {
  // The heading has the focus; otherwise a long dialog would open at its first button.
  const heading = createElement("h2", { id, tabindex: -1, autofocus: true }, title);
  const dialog = createElement("dialog", { class: className, "aria-labelledby": id }, heading);
  dialog.append(...makeChildren(dialog).filter(Boolean));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Create the row of a dialog's buttons, of which the first closes it. */
export const createActions = (dialog, leave, ...buttons) =>
  createElement("div", { class: "actions" }, createButton(leave, () => dialog.close()), ...buttons);

/**
 * Open a dialog with `fields` in a form, after the elements `above`. `save()` stores them, and what it throws is shown in
 * the dialog; `onSaved()` runs once it is closed. `leave` and `submit` are the labels of its buttons.
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
  const dialog = openDialog({ id, title }, (opened) => {
    const button = createElement("button", { type: "submit", class: isDanger ? "danger" : "primary" }, submit);
    const foot = createElement("footer", { class: "foot" }, problem, createActions(opened, leave, button));
    return [...above, createElement("form", { onsubmit }, ...fields, foot)];
  });
}
