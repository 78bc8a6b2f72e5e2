// The page Agents: the definitions in force, their instructions, and files that were refused.

import { createElement } from "../elements/dom.js";
import { createMark } from "../elements/page.js";
import * as api from "../server/api.js";
import { createPair } from "./cells.js";
import { hasScope } from "./choices.js";
import { createResourcePage } from "./resource_page.js";

const join = (words = []) => words.join(", ") || "–";

const makeList = (mayOperate) => {
  let refused = [];
  return {
    key: "key",
    noun: "agent",
    label: "Agents",
    list: "AgentService.ListAgents",
    filters: [],
    name: ({ name, key }) => name || key,
    find: async () => {
      const [items, problems] = await Promise.all([api.listAgents(), mayOperate ? api.getData("/api/agents/problems") : []]);
      refused = problems ?? [];
      return { items };
    },
    columns: [
      ["Name", createName, "name"],
      ["Key", ({ key }) => createElement("code", {}, key), "key"],
      ["Mode", ({ mode }) => mode ?? "–", "mode"],
      ["Model", ({ model }) => model || "–", "model"],
      ["Tools", ({ tools }) => join(tools), "tools"],
      ["Skills", ({ skills }) => join(skills), "skills"],
    ],
    hidden: ["description", "icon"],
    empty: "No agents. Put a definition into the agents' folder.",
    notice: () => createRefused(refused),
    details: createInstructions,
  };

  function createName({ key, name, description }) {
    const isOutdated = refused.some(({ agentKey }) => agentKey === key);
    const mark = isOutdated ? createMark("file refused", "bad") : "";
    return createElement("span", {}, createPair(name || key, description), mark);
  }
};

function createRefused(refused) {
  if (!refused.length) return null;
  const items = refused.map(({ file, problem, agentKey }) => {
    const stays = agentKey ? createElement("small", {}, ` The last valid version of ${agentKey} stays active.`) : null;
    return createElement("li", {}, createElement("strong", {}, file), `: ${problem}`, stays);
  });
  const parts = [createElement("h3", {}, "Refused files"), createElement("ul", {}, ...items)];
  return createElement("section", { class: "problems", "aria-label": "Refused files" }, ...parts);
}

function createInstructions({ key, name }) {
  const text = createElement("pre", { tabindex: 0, role: "group", "aria-label": `Instructions of ${name || key}` });
  const element = createElement("div", {}, createElement("h3", {}, "Instructions"), text);
  const load = async () => {
    const { instructions } = await api.getData("/api/agent", { agentKey: key });
    text.textContent = instructions || "None.";
  };
  return { element, load };
}

export const createPage = () =>
  createResourcePage({
    name: "agents",
    title: "Agents",
    about: "The active definitions.",
    lists: async () => [makeList(await hasScope("operate"))],
  });
