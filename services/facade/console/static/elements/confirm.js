// Asks for confirmation before an action.

import { createButton, createElement } from "./dom.js";
import { createActions, openDialog } from "./dialog.js";

/** Open a dialog that asks; `act()` runs when its `label` is clicked, `attributes` are those of that button. */
export function openConfirmation({ title, text, label, attributes = {}, act }) {
  openDialog({ id: "confirm-title", title }, (dialog) => {
    const confirm = () => {
      dialog.close();
      act();
    };
    return [createElement("p", {}, text), createActions(dialog, "Cancel", createButton(label, confirm, attributes))];
  });
}
