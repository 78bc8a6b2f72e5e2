// Asks for another title of a chat.

import { createElement } from "../elements/dom.js";
import { openForm } from "../elements/dialog.js";

const TITLE_CODE_UNITS_MAX = 100; // up to 400 bytes, which is what the server takes

/** Open a dialog with the title; `act(title)` stores another one, and what it throws is shown in the dialog. */
export function openRenaming({ title, act }) {
  const input = createElement("input", { id: "title", maxlength: TITLE_CODE_UNITS_MAX, autocomplete: "off" });
  input.value = title;
  openForm({
    id: "rename-title",
    title: "Rename chat",
    fields: [createElement("label", { for: "title" }, "Title (empty: the first words of the chat)"), input],
    leave: "Cancel",
    submit: "Rename",
    save: () => act(input.value),
  });
  input.select();
}
