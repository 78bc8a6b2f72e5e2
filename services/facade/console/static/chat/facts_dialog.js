// A dialog to read, change, delete and export the facts kept about the user for all chats.

import * as api from "../server/api.js";
import { createActions, openDialog } from "../elements/dialog.js";
import { createButton, createElement } from "../elements/dom.js";
import { saveData } from "../elements/download.js";
import { formatDate } from "../elements/format.js";
import { formatHash } from "../navigation/address.js";

const SCOPES = { user: "with every agent", tenant: "everyone here" };

/** Save all facts as JSON lines, including replaced ones and the remains of deleted ones. */
async function exportFacts() {
  const lines = [];
  let page = "";
  do {
    const { facts, nextPageToken } = await api.exportFacts(page);
    lines.push(...facts.map((fact) => `${JSON.stringify(fact)}\n`));
    page = nextPageToken;
  } while (page);
  saveData(lines.join(""), "facts.jsonl");
}

/** Open the dialog with the first page of facts. */
export async function openFacts() {
  const list = createElement("ul", { class: "facts" });
  const problem = createElement("p", { class: "problem", role: "alert", hidden: true });
  const more = createButton("Show more", () => loadPage(), { hidden: true });
  const empty = createElement("p", { hidden: true }, "No facts are stored about you.");
  const dialog = openDialog({ id: "facts-title", title: "Facts about you" }, (opened) => [
    createElement("p", {}, "Facts that agents with memory know in every chat. Deleting a fact is permanent."),
    problem,
    empty,
    list,
    more,
    createActions(opened, "Close", createButton("Export", () => attempt(exportFacts))),
  ]);
  let nextPage = "";

  async function attempt(act) {
    problem.hidden = true;
    try {
      await act();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  }

  function loadPage() {
    return attempt(async () => {
      const { facts, nextPageToken } = await api.listFacts(nextPage);
      nextPage = nextPageToken ?? "";
      more.hidden = !nextPage;
      list.append(...facts.map(createItem));
      empty.hidden = list.children.length > 0;
    });
  }

  function createItem(fact) {
    const about = [SCOPES[fact.scope] ?? `with ${fact.agentKey}`, fact.topic, formatDate(fact.updatedAt)];
    const chat = fact.source && formatHash({ chatId: fact.source.chatId });
    const source = chat && createElement("a", { href: chat, onclick: () => dialog.close() }, "Chat");
    const item = createElement(
      "li",
      {},
      createElement("p", {}, fact.text),
      createElement("small", {}, about.filter(Boolean).join(" · ")),
      source,
      createButton("Edit", () => item.replaceWith(createForm(fact)), { "aria-label": `Edit “${fact.text}”` }),
      createButton("Delete", () => removeFact(item, fact), { class: "danger", "aria-label": `Delete “${fact.text}”` }),
    );
    return item;
  }

  function createForm(fact) {
    const text = createElement("textarea", { rows: "2", required: true, "aria-label": "Fact" });
    text.value = fact.text;
    const save = (event) => {
      event.preventDefault();
      attempt(async () => {
        const changed = await api.updateFact(fact.factId, text.value);
        form.replaceWith(createItem(changed));
      });
    };
    const form = createElement(
      "li",
      {},
      createElement(
        "form",
        { onsubmit: save },
        text,
        createElement(
          "div",
          { class: "actions" },
          createButton("Cancel", () => form.replaceWith(createItem(fact))),
          createElement("button", { type: "submit", class: "primary" }, "Save"),
        ),
      ),
    );
    return form;
  }

  function removeFact(item, fact) {
    return attempt(async () => {
      await api.deleteFact(fact.factId);
      item.remove();
      empty.hidden = list.children.length > 0;
    });
  }

  await loadPage();
}
