// Which agent is asked: a list to choose from, and what the chosen one is.

import * as api from "../server/api.js";
import { h } from "../elements/dom.js";

export class Agents {
  #known = new Map();
  #wanted;

  constructor(select, about) {
    this.select = select;
    this.about = about;
    select.addEventListener("change", () => this.#tell());
  }

  /** The key to ask; undefined leaves it to the server. */
  get key() {
    return this.select.value || undefined;
  }

  async load() {
    const agents = await api.agents();
    this.#known = new Map(agents.map((agent) => [agent.key, agent]));
    const options = agents.map(({ key, name, icon }) => h("option", { value: key }, `${emoji(icon)}${name || key}`));
    this.select.replaceChildren(h("option", { value: "" }, "Chat's own agent"), ...options);
    this.choose(this.#wanted ?? agents[0]?.key);
  }

  /** Select an agent; before the list is there, then. */
  choose(key) {
    this.#wanted = key;
    if (this.#known.has(key)) this.select.value = key;
    this.#tell();
  }

  #tell() {
    const agent = this.#known.get(this.select.value);
    const parts = agent && [agent.description, agent.mode, agent.model, agent.tools?.join(", ")];
    this.about.textContent = parts ? parts.filter(Boolean).join(" · ") : "";
  }
}

function emoji(icon) {
  return icon?.startsWith("emoji:") ? `${icon.slice("emoji:".length)} ` : "";
}
