// The page Own agents: the tenant's own agents, with their editor.

import { Editor } from "../agents/editor.js";
import { formatDefinition } from "../agents/definition.js";
import { announceText } from "../elements/announcer.js";
import { createButton, createElement } from "../elements/dom.js";
import { createMark } from "../elements/page.js";
import * as api from "../server/api.js";
import { createResourcePage } from "./resource_page.js";

const NEW = {
  key: "",
  mode: "REACT",
  modelConfig: { providerKey: "", model: "" },
  react: { systemPrompt: "You are a helpful assistant." },
};

export function createPage() {
  const note = createElement("p", { class: "about", hidden: true });
  const place = createElement("div", {}, note);
  let editor = null;

  const list = {
    key: "key",
    noun: "agent",
    label: "Own agents",
    list: "AgentService.ListStoredAgents",
    filters: [],
    isFlat: true,
    name: ({ key }) => key,
    columns: [
      ["Key", ({ key }) => createElement("code", {}, key), "key"],
      ["State", createAgentState, "problems"],
      "updatedAt",
      "updatedBy",
    ],
    empty: "No agents yet. Create one, try it, and publish it for this tenant.",
    tools: () => [createButton("New agent", () => edit({ key: "", version: 0, definition: formatDefinition(NEW) }), { class: "primary" })],
    actions: [{ label: "Edit", inRow: true, done: ({ key }) => open(key) }],
    notice: () => place,
  };

  async function open(key) {
    const { definition, version } = await api.getData("/api/agent/definition", { agentKey: key });
    edit({ key, version, definition });
  }

  function edit(agent) {
    editor?.close();
    note.hidden = true;
    editor = new Editor(agent, { onDone: finish, onClose: leave });
    place.replaceChildren(note, editor.element);
    editor.focus();
  }

  function finish(text) {
    leave();
    note.textContent = text;
    note.hidden = false;
    announceText(text);
  }

  function leave() {
    editor?.close();
    editor = null;
    place.replaceChildren(note);
    place.closest(".page").querySelector("h2").focus();
  }

  return createResourcePage({
    name: "own_agents",
    title: "Own agents",
    about: "This tenant's agents, in addition to the operator's and within the operator's grants.",
    lists: () => [list],
  });
}

function createAgentState({ version, problems = [] }) {
  if (!problems.length) return createMark(`version ${version}`, "good");
  const items = problems.map(({ field, rule }) => createElement("li", {}, `${field || "text"}: ${rule}`));
  return createElement("span", {}, createMark("inactive", "bad"), createElement("ul", {}, ...items));
}
