// Lists the agents to choose from, and introduces the chosen one with questions to begin with.

import * as api from "../server/api.js";
import { createButton, createElement } from "../elements/dom.js";

const CHOSEN = "headrace.agent"; // the agent that was chosen last in this browser
const TOOLS_MAX = 6;

export class AgentPicker {
  #agents = new Map();
  #wantedKey;

  /** `about` gets a line about the agent, `welcome` its introduction, `simulated` is shown for a simulated model;
   * `ask(question)` asks one of its questions. */
  constructor({ select, about, welcome, simulated, ask }) {
    Object.assign(this, { select, about, welcome, simulated, ask });
    select.addEventListener("change", () => {
      localStorage.setItem(CHOSEN, select.value);
      this.#showAgent();
    });
  }

  /** Key of the agent to ask; undefined leaves the choice to the server. */
  get key() {
    return this.select.value || undefined;
  }

  async loadAgents() {
    const agents = await api.listAgents();
    this.#agents = new Map(agents.map((agent) => [agent.key, agent]));
    const options = agents.map((agent) => createElement("option", { value: agent.key }, formatName(agent)));
    this.select.replaceChildren(createElement("option", { value: "" }, "Chat's agent"), ...options);
    this.chooseAgent(this.#wantedKey ?? pickAgent(agents)?.key);
  }

  /** Select an agent, if necessary once the list is loaded. */
  chooseAgent(key) {
    this.#wantedKey = key;
    if (this.#agents.has(key)) this.select.value = key;
    this.#showAgent();
  }

  #showAgent() {
    const agent = this.#agents.get(this.select.value);
    this.simulated.hidden = !agent?.isSimulated;
    this.about.textContent = agent ? describe(agent) : "";
    if (!agent) return;
    const questions = (agent.questions ?? []).map((question) => createButton(question, () => this.ask(question)));
    this.welcome.replaceChildren(
      createElement("h2", {}, formatName(agent)),
      createElement("p", {}, agent.description || "What should the agent do?"),
      createElement("div", { class: "questions" }, ...questions),
    );
  }
}

/** Return the first agent to show: the one chosen last, the default, or one with example questions. */
const pickAgent = (agents) =>
  agents.find(({ key }) => key === localStorage.getItem(CHOSEN)) ??
  agents.find(({ isDefault }) => isDefault) ??
  agents.find(({ questions }) => questions?.length) ??
  agents[0];

function describe({ model, tools = [] }) {
  const more = tools.length > TOOLS_MAX ? ` and ${tools.length - TOOLS_MAX} more` : "";
  const named = tools.slice(0, TOOLS_MAX).join(", ");
  return [model, named && `tools: ${named}${more}`].filter(Boolean).join(" · ");
}

const formatName = ({ key, name, icon }) =>
  `${icon?.startsWith("emoji:") ? `${icon.slice("emoji:".length)} ` : ""}${name || key}`;
