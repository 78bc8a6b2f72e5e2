// Asks for another title of a chat.

import { createButton, createElement } from "../elements/dom.js";

const TITLE_CODE_UNITS_MAX = 100; // up to 400 bytes, which is what the server takes

/** Open a dialog with the title; `act(title)` stores another one, and what it throws is shown in the dialog. */
export function openRenaming({ title, act }) {
  const input = createElement("input", { id: "title", maxlength: TITLE_CODE_UNITS_MAX, autocomplete: "off" });
  input.value = title;
  const problem = createElement("p", { class: "problem", role: "alert", hidden: true });
  const save = async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      await act(input.value);
      dialog.close();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  };
  const dialog = createElement(
    "dialog",
    { "aria-labelledby": "rename-title" },
    createElement("h2", { id: "rename-title" }, "Rename the chat"),
    createElement(
      "form",
      { onsubmit: save },
      createElement("label", { for: "title" }, "Title; without one, the chat has its first words"),
      input,
      problem,
      createElement(
        "div",
        { class: "actions" },
        createButton("Keep", () => dialog.close()),
        createElement("button", { type: "submit", class: "primary" }, "Rename"),
      ),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  input.select();
}
