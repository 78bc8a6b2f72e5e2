// Lists the agents to choose from and describes the chosen one.

import * as api from "../server/api.js";
import { createElement } from "../elements/dom.js";

export class AgentPicker {
  #agents = new Map();
  #wantedKey;

  constructor(select, about) {
    this.select = select;
    this.about = about;
    select.addEventListener("change", () => this.#showDescription());
  }

  /** Key of the agent to ask; undefined leaves the choice to the server. */
  get key() {
    return this.select.value || undefined;
  }

  async loadAgents() {
    const agents = await api.listAgents();
    this.#agents = new Map(agents.map((agent) => [agent.key, agent]));
    const options = agents.map(({ key, name, icon }) =>
      createElement("option", { value: key }, `${formatIcon(icon)}${name || key}`),
    );
    this.select.replaceChildren(createElement("option", { value: "" }, "Chat's agent"), ...options);
    this.chooseAgent(this.#wantedKey ?? agents[0]?.key);
  }

  /** Select an agent, if necessary once the list is loaded. */
  chooseAgent(key) {
    this.#wantedKey = key;
    if (this.#agents.has(key)) this.select.value = key;
    this.#showDescription();
  }

  #showDescription() {
    const agent = this.#agents.get(this.select.value);
    const parts = agent && [agent.description, agent.mode, agent.model, agent.tools?.join(", ")];
    this.about.textContent = parts ? parts.filter(Boolean).join(" · ") : "";
  }
}

function formatIcon(icon) {
  return icon?.startsWith("emoji:") ? `${icon.slice("emoji:".length)} ` : "";
}
