// Shows who may read a chat, and which of them may take part.

import * as api from "../server/api.js";
import { createButton, createElement } from "../elements/dom.js";
import { openForm } from "../elements/dialog.js";

const CHOICES = { read: "can read", take_part: "can take part" };

/** Open a dialog with whom the chat is shared now; its changes hold once they are saved. */
export async function openSharing({ chatId, title }) {
  const { sharedWith = [], participants = [] } = await api.getChat(chatId, { withoutEvents: true });
  const list = createElement("ul", { class: "shares" });
  const add = (name, access) => list.append(createShare(name, access));
  for (const name of sharedWith) add(name, participants.includes(name) ? "take_part" : "read");

  const name = createElement("input", {
    id: "share-name",
    placeholder: "user:NAME, role:NAME or tenant",
    maxlength: 133,
    autocomplete: "off",
  });
  const access = createAccess("share-access", "read");
  const take = () => {
    if (name.value.trim()) add(name.value.trim(), access.value);
    name.value = "";
    name.focus();
  };
  openForm({
    id: "share-title",
    title: `Share “${title}”`,
    above: [
      createElement(
        "p",
        {},
        "Readers see the whole chat. Participants can also ask, in their own name and on their own budget.",
      ),
      list,
    ],
    fields: [
      createElement("label", { for: "share-name" }, "With"),
      name,
      createElement("label", { class: "hidden", for: "share-access" }, "Access level"),
      access,
      createButton("Add", take),
    ],
    leave: "Cancel",
    submit: "Save",
    save: () => {
      take();
      return api.shareChat(chatId, readShares(list));
    },
  });
  name.focus();
}

function createAccess(id, chosen, attributes = {}) {
  const options = Object.entries(CHOICES).map(([value, text]) => createElement("option", { value }, text));
  const select = createElement("select", { ...(id && { id }), ...attributes }, ...options);
  select.value = chosen;
  return select;
}

function createShare(name, chosen) {
  const access = createAccess("", chosen, { "aria-label": `Access of ${name}` });
  const item = createElement("li", { "data-name": name }, createElement("span", {}, name), access);
  const attributes = { class: "quiet", "aria-label": `Stop sharing with ${name}` };
  item.append(createButton("×", () => item.remove(), attributes));
  return item;
}

function readShares(list) {
  const shares = [...list.children].map((item) => [item.dataset.name, item.querySelector("select").value]);
  const pick = (wanted) => shares.filter(([, access]) => access === wanted).map(([name]) => name);
  return { sharedWith: pick("read"), participants: pick("take_part") };
}
