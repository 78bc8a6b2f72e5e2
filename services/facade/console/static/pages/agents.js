// The page Agents: the definitions in force, their instructions, and files that were refused.

import { createElement } from "../elements/dom.js";
import { createFrame, createMark } from "../elements/page.js";
import * as api from "../server/api.js";

export function createPage() {
  const problems = createElement("section", { class: "problems", "aria-label": "Refused files", hidden: true });
  const list = createElement("ul", { class: "cards", "aria-label": "Agents" });
  const { element, showProblem } = createFrame(
    { title: "Agents", about: "The active definitions.", className: "agents" },
    problems,
    list,
  );

  async function load() {
    try {
      const [agents, refused] = await Promise.all([api.listAgents(), listProblems()]);
      const staying = new Set(refused.map(({ agentKey }) => agentKey));
      list.replaceChildren(...agents.map((agent) => createItem(agent, staying.has(agent.key))));
      showRefused(refused);
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  function showRefused(refused) {
    problems.hidden = !refused.length;
    const items = refused.map(({ file, problem, agentKey }) =>
      createElement(
        "li",
        {},
        createElement("strong", {}, file),
        `: ${problem}`,
        agentKey ? createElement("small", {}, ` The last valid version of ${agentKey} stays active.`) : null,
      ),
    );
    problems.replaceChildren(createElement("h3", {}, "Refused files"), createElement("ul", {}, ...items));
  }

  return { element, show: load, hide() {} };
}

/** List refused files, for those who may see them. */
async function listProblems() {
  const { scopes = [] } = await api.getIdentity();
  return scopes.includes("operate") ? ((await api.getData("/api/agents/problems")) ?? []) : [];
}

function createItem({ key, name, description, mode, model, tools = [], skills = [] }, isOutdated) {
  const facts = [
    ["Key", key],
    ["Mode", mode],
    ["Model", model],
    ["Tools", tools.join(", ")],
    ["Skills", skills.join(", ")],
  ].filter(([, fact]) => fact);
  return createElement(
    "li",
    {},
    createElement("h3", {}, name || key, isOutdated ? createMark("file refused", "bad") : null),
    description ? createElement("p", {}, description) : null,
    createElement(
      "dl",
      {},
      ...facts.flatMap(([term, fact]) => [createElement("dt", {}, term), createElement("dd", {}, fact)]),
    ),
    createInstructions(key, name || key),
  );
}

/** Create the agent's instructions, which are loaded when they are unfolded. */
function createInstructions(key, name) {
  const text = createElement("pre", { tabindex: 0, role: "group", "aria-label": `Instructions of ${name}` });
  const load = async () => {
    if (!folded.open) return;
    try {
      const { instructions } = await api.getData("/api/agent", { agentKey: key });
      text.textContent = instructions || "None.";
    } catch (error) {
      text.textContent = error.message;
    }
  };
  const folded = createElement("details", { ontoggle: load }, createElement("summary", {}, "Instructions"), text);
  return folded;
}
