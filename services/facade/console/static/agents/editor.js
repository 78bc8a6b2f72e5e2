// The editor of one agent of the tenant: form and JSON side by side, with problems at their fields.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { createFields } from "../people/fields.js";
import * as api from "../server/api.js";
import { PATHS, findField, findPath, formatDefinition, parseDefinition, readFields, writeField } from "./definition.js";
import { createDiff } from "./line_diff.js";
import { Scratch } from "./scratch.js";

const CHECK_MS = 400;

const NAMES = { type: "array", items: { type: "string" } };
const SCHEMA = {
  properties: {
    key: { type: "string", title: "Key", description: "Letters, digits, _ . -" },
    name: { type: "string", title: "Name" },
    description: { type: "string", title: "Description", description: "One sentence." },
    mode: { type: "string", title: "Mode", enum: ["ONESHOT", "REACT", "PLAN_EXECUTE", "CUSTOM", "REMOTE"] },
    providerKey: { type: "string", title: "Provider" },
    model: { type: "string", title: "Model" },
    prompt: { type: "string", title: "System prompt", maxLength: 1_000_000 },
    tools: { ...NAMES, title: "Tools" },
    skills: { ...NAMES, title: "Skills" },
    subagents: { ...NAMES, title: "Sub-agents" },
  },
};

export class Editor {
  #timer = 0;
  #checks = 0;
  #choices = {};
  #problems = null; // of the text that was checked last
  #read = () => ({});

  /** `agent` is {key, version, definition}, of a new one {key: "", version: 0, definition}; `onDone(text)` when it was
   * published or deleted, `onClose()` when it is left. */
  constructor(agent, { onDone, onClose }) {
    this.agent = agent;
    this.onDone = onDone;
    this.text = createElement("textarea", {
      "aria-label": "Definition as JSON",
      spellcheck: "false",
      rows: 26,
      oninput: () => this.#handleText(),
    });
    this.text.value = agent.definition;
    this.problem = createElement("p", { class: "problem", role: "alert", hidden: true });
    this.found = createElement("ul", { class: "found", "aria-label": "Problems", "aria-live": "polite" });
    this.publish = createButton("Publish", () => this.#publish(), { class: "primary" });
    this.scratch = new Scratch(() => this.#readTrial());
    this.versions = createElement("select", { "aria-label": "Version", onchange: () => this.#compare() });
    this.difference = createElement("div", {});
    this.history = createElement("details", { class: "folded", hidden: !agent.version, ontoggle: () => this.#compare() });
    this.plain = createElement("p", { class: "about", hidden: true }, "The form requires valid JSON: fix the text first.");
    this.fields = createElement("fieldset", {});
    const onsubmit = (event) => event.preventDefault();
    const attributes = { class: "form", "aria-label": "Form", oninput: () => this.#handleForm(), onsubmit };
    const form = createElement("form", attributes, this.plain, this.fields);
    this.element = createElement(
      "section",
      { class: "editor", "aria-label": agent.key || "New agent" },
      createElement("h3", { tabindex: -1 }, agent.key ? `${agent.key} · version ${agent.version}` : "New agent"),
      createElement(
        "div",
        { class: "actions" },
        this.publish,
        agent.key ? createButton("Delete", () => this.#confirmDeletion()) : null,
        createButton("Close", onClose),
      ),
      this.problem,
      createElement("div", { class: "sides" }, form, createElement("div", {}, this.text, this.found)),
      this.#fillHistory(),
      this.scratch.element,
    );
    this.#showForm();
    this.#loadChoices();
    this.#check();
  }

  focus() {
    this.element.querySelector("h3").focus();
  }

  close() {
    clearTimeout(this.#timer);
    this.#checks = Infinity;
    this.scratch.reset();
  }

  /** Load the available tools, skills, agents and models as the choices of the form. */
  async #loadChoices() {
    const list = (path, name) =>
      api.getData(path).then(
        (items) => (items ?? []).map((item) => item[name]),
        () => [], // names can be written into the text
      );
    const [tools, skills, subagents, providers] = await Promise.all([
      list("/api/tools", "name"),
      list("/api/skills", "name"),
      list("/api/agents", "key"),
      api.getData("/api/operator/providers").catch(() => []), // only operators see them
    ]);
    const models = (providers ?? []).flatMap(({ models: known = [] }) => known.map(({ model }) => model));
    this.#choices = { tools, skills, subagents, providerKey: (providers ?? []).map(({ providerKey }) => providerKey), model: models };
    this.#showForm();
  }

  #handleText() {
    this.#showForm();
    this.#checkSoon();
  }

  #handleForm() {
    const definition = parseDefinition(this.text.value);
    if (!definition) return;
    const [before, values] = [readFields(definition), this.#read()];
    for (const id of Object.keys(PATHS)) {
      if (JSON.stringify(before[id] ?? "") !== JSON.stringify(values[id] ?? "")) writeField(id, definition, values[id]);
    }
    this.text.value = formatDefinition(definition);
    if (values.mode !== before.mode) {
      this.#showForm();
      this.#field("mode").focus();
    }
    this.#checkSoon();
  }

  /** Draw the form for the text; without a valid one it keeps its fields, which then change nothing. */
  #showForm() {
    const definition = parseDefinition(this.text.value);
    this.plain.hidden = Boolean(definition);
    this.fields.disabled = !definition;
    if (!definition) return;
    const values = readFields(definition);
    const shown = Object.entries(SCHEMA.properties).filter(([id]) => findPath(id, definition));
    const properties = shown.map(([id, property]) => [id, this.#addChoices(id, property, values[id] ?? [])]);
    const { elements, read } = createFields({ properties: Object.fromEntries(properties) }, values);
    this.#read = read;
    this.fields.replaceChildren(...elements);
    this.#field("key").disabled = Boolean(this.agent.key);
    if (this.#problems) this.#showProblems(this.#problems);
  }

  /** Add a field's choices; a chosen name that is not offered stays. */
  #addChoices(id, property, chosen) {
    const offered = this.#choices[id] ?? [];
    if (property.items && offered.length) return { ...property, items: { ...property.items, enum: [...new Set([...offered, ...chosen])] } };
    return { ...property, examples: offered };
  }

  /** Return a field of the form, or the group of its choices. */
  #field(id) {
    return this.fields.querySelector(`[name="${id}"]`);
  }

  #checkSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#check(), CHECK_MS);
  }

  async #check() {
    const check = ++this.#checks;
    try {
      const body = { definition: this.text.value || " ", forTenant: true };
      const { problems = [] } = await api.postData("/api/agent/validate", body);
      if (check === this.#checks) this.#showProblems(problems);
    } catch (error) {
      if (check === this.#checks) this.#showFailure(error);
    }
  }

  #showProblems(problems) {
    this.#problems = problems;
    const definition = parseDefinition(this.text.value) ?? {};
    for (const note of this.fields.querySelectorAll(".problem")) note.remove();
    for (const input of this.fields.querySelectorAll("[aria-describedby]")) {
      input.removeAttribute("aria-describedby");
      input.removeAttribute("aria-invalid");
    }
    for (const { field = "", rule, isWarning } of problems) {
      const id = findField(field, definition);
      const input = id && this.#field(id);
      if (!input) continue;
      const noteId = `problem-of-${id}`;
      const known = this.fields.querySelector(`#${noteId}`);
      if (known) known.textContent += `; ${rule}`;
      else input.closest("fieldset, label").after(createElement("small", { class: "problem", id: noteId }, rule));
      input.setAttribute("aria-describedby", noteId);
      if (!isWarning && input.tagName !== "FIELDSET") input.setAttribute("aria-invalid", "true");
    }
    const items = problems.map(({ field, rule, isWarning }) =>
      createElement("li", {}, createElement("strong", {}, field || "text"), `: ${rule}`, isWarning ? " (a warning)" : ""),
    );
    this.found.replaceChildren(...(items.length ? items : [createElement("li", {}, "No problems found.")]));
    this.publish.disabled = problems.some(({ isWarning }) => !isWarning);
  }

  async #publish() {
    this.#showFailure(null);
    this.publish.disabled = true;
    try {
      const body = { definition: this.text.value, expectedVersion: this.agent.version };
      const { problems = [], isStored, agent } = await api.postData("/api/agent", body);
      if (isStored) return this.onDone(`${agent.key} is active as version ${agent.version}.`);
      this.#showProblems(problems);
    } catch (error) {
      this.#showFailure(error);
      this.publish.disabled = false;
    }
    return undefined;
  }

  #confirmDeletion() {
    const { key, version } = this.agent;
    const remove = async () => {
      try {
        await api.deleteData("/api/agent", { agentKey: key, expectedVersion: version });
        this.onDone(`${key} is deleted. Its runs continue, and its versions are kept.`);
      } catch (error) {
        this.#showFailure(error);
      }
    };
    const text = "New queries for it will be refused. Its current runs continue, and its versions are kept.";
    openConfirmation({ title: `Delete “${key}”?`, text, label: "Delete", attributes: { class: "danger" }, act: remove });
  }

  #fillHistory() {
    this.history.append(
      createElement("summary", {}, "Versions"),
      createElement(
        "div",
        { class: "actions" },
        this.versions,
        createButton("Use this version", () => this.#takeVersion()),
      ),
      createElement("p", { class: "about" }, "Differences between this version (−) and the text above (+). Publish its text to restore it."),
      this.difference,
    );
    return this.history;
  }

  async #compare() {
    if (!this.history.open) return;
    try {
      if (!this.versions.options.length) await this.#loadVersions();
      const before = parseDefinition(await this.#loadVersion());
      const now = parseDefinition(this.text.value);
      const text = now ? formatDefinition(sortFields(now)) : this.text.value;
      this.difference.replaceChildren(createDiff(formatDefinition(sortFields(before ?? {})), text));
    } catch (error) {
      this.#showFailure(error);
    }
  }

  async #loadVersions() {
    const versions = (await api.getData("/api/agent/versions", { agentKey: this.agent.key })) ?? [];
    const options = versions.map(({ version, createdAt }) => {
      const mark = version === this.agent.version ? " (in force)" : "";
      return createElement("option", { value: version }, `Version ${version}${mark}, ${formatDate(createdAt)}`);
    });
    this.versions.replaceChildren(...options);
    this.versions.value = this.agent.version;
  }

  async #loadVersion() {
    const parameters = { agentKey: this.agent.key, version: this.versions.value };
    return (await api.getData("/api/agent/definition", parameters)).definition;
  }

  async #takeVersion() {
    try {
      this.text.value = await this.#loadVersion();
      this.#handleText();
      await this.#compare();
    } catch (error) {
      this.#showFailure(error);
    }
  }

  #readTrial() {
    const definition = parseDefinition(this.text.value);
    if (!definition) throw new Error("The text is not a JSON object.");
    const agentKey = definition.key ?? this.agent.key;
    if (!agentKey) throw new Error("A key is required.");
    return { agentKey, definition: this.text.value };
  }

  #showFailure(error) {
    this.problem.hidden = !error;
    this.problem.textContent = error ? error.message : "";
  }
}

/** Return a copy with the fields of all objects in order, as versions have them. */
function sortFields(value) {
  if (Array.isArray(value)) return value.map(sortFields);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((name) => [name, sortFields(value[name])]),
  );
}
