// The page Own agents: those that the tenant keeps itself, with their editor.

import { Editor } from "../agents/editor.js";
import { formatDefinition } from "../agents/definition.js";
import { announceText } from "../elements/announcer.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { createFrame, createMark, replaceItems } from "../elements/page.js";
import * as api from "../server/api.js";

const NEW = {
  key: "",
  mode: "REACT",
  modelConfig: { providerKey: "", model: "" },
  react: { systemPrompt: "You are a helpful assistant." },
};

export function createPage() {
  const list = createElement("ul", { class: "cards", "aria-label": "Own agents" });
  const empty = createElement("p", { hidden: true }, "No agents yet.");
  const told = createElement("p", { class: "about", hidden: true });
  const place = createElement("div", {});
  let editor = null;
  const { element, showProblem } = createFrame(
    {
      title: "Own agents",
      about: "This tenant's agents, in addition to the operator's and within the operator's grants.",
      tools: [
        createButton("New agent", () => edit({ key: "", version: 0, definition: formatDefinition(NEW) })),
        createButton("Refresh", () => load()),
      ],
      className: "own-agents",
    },
    told,
    empty,
    list,
    place,
  );

  async function load() {
    try {
      const agents = (await api.getData("/api/agents/stored")) ?? [];
      replaceItems(list, agents.map(createItem), element.querySelector("h2"));
      empty.hidden = agents.length > 0;
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  function createItem({ key, version, updatedAt, updatedBy, problems = [] }) {
    const state = problems.length ? createMark("inactive", "bad") : createMark(`version ${version}`, "good");
    const items = problems.map(({ field, rule }) => createElement("li", {}, `${field || "text"}: ${rule}`));
    return createElement(
      "li",
      {},
      createElement("h3", {}, key, state),
      createElement("p", { class: "about" }, `put ${formatDate(updatedAt)} by ${updatedBy}`),
      items.length ? createElement("ul", {}, ...items) : null,
      createElement(
        "div",
        { class: "actions" },
        createButton("Edit", () => open(key), { "data-focus": key, "aria-label": `Edit: ${key}` }),
      ),
    );
  }

  async function open(key) {
    try {
      const { definition, version } = await api.getData("/api/agent/definition", { agentKey: key });
      edit({ key, version, definition });
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  function edit(agent) {
    editor?.close();
    told.hidden = true;
    editor = new Editor(agent, { onDone: finish, onClose: leave });
    place.replaceChildren(editor.element);
    editor.focus();
  }

  async function finish(text) {
    leave();
    told.textContent = text;
    told.hidden = false;
    announceText(text);
    await load();
  }

  function leave() {
    editor?.close();
    editor = null;
    place.replaceChildren();
    element.querySelector("h2").focus();
  }

  return { element, show: load, hide() {} };
}
