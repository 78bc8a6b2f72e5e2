// The editor of one agent of the tenant: form and JSON side by side, with problems at their fields.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { createField } from "../elements/page.js";
import * as api from "../server/api.js";
import { FIELDS, findField, findPath, formatDefinition, parseDefinition, readField, writeField } from "./definition.js";
import { createDiff } from "./line_diff.js";
import { Picker } from "./picker.js";
import { Scratch } from "./scratch.js";

const CHECK_MS = 400;

export class Editor {
  #timer = 0;
  #checks = 0;
  #inputs = {};
  #notes = {};

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
      createElement("div", { class: "sides" }, this.#createForm(), createElement("div", {}, this.text, this.found)),
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

  #createForm() {
    const fields = Object.entries(FIELDS).map(([id, field]) => {
      this.#notes[id] = createElement("small", { class: "problem", id: `problem-of-${id}` });
      return createElement("div", {}, this.#createInput(id, field), this.#notes[id]);
    });
    this.plain = createElement("p", { class: "about", hidden: true }, "The form requires valid JSON: fix the text first.");
    const onsubmit = (event) => event.preventDefault();
    return createElement("form", { class: "form", "aria-label": "Form", onsubmit }, this.plain, ...fields);
  }

  #createInput(id, { label, hint, options, isLong, isList, isOffered }) {
    const oninput = () => this.#handleField(id);
    const attributes = { oninput, "aria-describedby": `problem-of-${id}` };
    if (isList) {
      this.#inputs[id] = new Picker(label, oninput, `problem-of-${id}`);
      return this.#inputs[id].element;
    }
    if (options) {
      const listed = ["", ...options].map((value) => createElement("option", { value }, value || "choose"));
      this.#inputs[id] = createElement("select", attributes, ...listed);
    } else if (isLong) this.#inputs[id] = createElement("textarea", { ...attributes, rows: 8 });
    else this.#inputs[id] = createElement("input", { ...attributes, type: "text", autocomplete: "off", list: isOffered ? `offer-of-${id}` : null });
    const offer = isOffered ? createElement("datalist", { id: `offer-of-${id}` }) : null;
    return createElement("div", {}, createField(label, this.#inputs[id], hint), offer);
  }

  /** Offer the tools, skills, agents and models that there are, each list once it has come. */
  #loadChoices() {
    const offer = (id, path, choose) =>
      api.getData(path).then(
        (items) => this.#inputs[id].offer((items ?? []).map(choose)),
        () => {}, // names can be written into the text
      );
    offer("tools", "/api/tools", ({ name, description }) => [name, description]);
    offer("skills", "/api/skills", ({ name, description }) => [name, description]);
    offer("subagents", "/api/agents", ({ key, name }) => [key, name]);
    api.getData("/api/operator/providers").then(
      (providers) => {
        const fill = (id, values) =>
          this.element.querySelector(`#offer-of-${id}`).replaceChildren(...values.map((value) => createElement("option", { value })));
        fill("providerKey", providers.map(({ providerKey }) => providerKey));
        fill("model", providers.flatMap(({ models = [] }) => models.map(({ model }) => model)));
      },
      () => {}, // only operators see them
    );
  }

  #handleText() {
    this.#showForm();
    this.#checkSoon();
  }

  #handleField(id) {
    const definition = parseDefinition(this.text.value);
    if (!definition) return;
    writeField(id, definition, this.#inputs[id].value);
    this.text.value = formatDefinition(definition);
    if (id === "mode") this.#showForm();
    this.#checkSoon();
  }

  #showForm() {
    const definition = parseDefinition(this.text.value);
    this.plain.hidden = Boolean(definition);
    for (const [id, input] of Object.entries(this.#inputs)) {
      input.disabled = !definition || !findPath(id, definition) || (id === "key" && Boolean(this.agent.key));
      if (definition) input.value = readField(id, definition);
    }
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
    const definition = parseDefinition(this.text.value) ?? {};
    for (const note of Object.values(this.#notes)) note.textContent = "";
    for (const id of Object.keys(this.#inputs)) this.#setInvalid(id, false);
    for (const { field = "", rule, isWarning } of problems) {
      const id = findField(field, definition);
      if (!id) continue;
      this.#notes[id].textContent = [this.#notes[id].textContent, rule].filter(Boolean).join("; ");
      if (!isWarning) this.#setInvalid(id, true);
    }
    const items = problems.map(({ field, rule, isWarning }) =>
      createElement("li", {}, createElement("strong", {}, field || "text"), `: ${rule}`, isWarning ? " (a warning)" : ""),
    );
    this.found.replaceChildren(...(items.length ? items : [createElement("li", {}, "No problems found.")]));
    this.publish.disabled = problems.some(({ isWarning }) => !isWarning);
  }

  #setInvalid(id, isInvalid) {
    const input = this.#inputs[id];
    if (input instanceof Picker) input.setInvalid(isInvalid);
    else if (isInvalid) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
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
