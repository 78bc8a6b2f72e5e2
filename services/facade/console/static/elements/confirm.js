// Asks before something is done that changes a chat.

import { createButton, createElement } from "./dom.js";

/** Open a dialog; `act()` runs when its `label` is clicked, `attributes` are those of that button. */
export function openConfirmation({ title, text, label, attributes = {}, act }) {
  const dialog = createElement("dialog", { "aria-labelledby": "confirm-title" });
  const confirm = () => {
    dialog.close();
    act();
  };
  dialog.append(
    createElement("h2", { id: "confirm-title" }, title),
    createElement("p", {}, text),
    createElement(
      "div",
      { class: "actions" },
      createButton("Cancel", () => dialog.close()),
      createButton(label, confirm, attributes),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
