// A list of the contract as a table: filters, pages, rows that unfold, actions, and forms that create and edit an item.
//
// A resource names its RPCs; labels, hints, fields of forms and texts of confirmations come from the contract.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatCount } from "../elements/format.js";
import { openForm } from "../elements/dialog.js";
import { createFacts, createRow, createTable, replaceItems } from "../elements/page.js";
import { createFields } from "../people/fields.js";
import { callRpc, listRpc } from "../server/contract.js";
import { formatField } from "./cells.js";

const PAGING = ["pageSize", "pageToken"];
const EMPTY = { array: "[]", boolean: "false", integer: "0", string: '""' }; // what an absent value of an item is, as JSON

/** Return whether a value can be shown: it is not empty, and not a single message. */
const isShown = (value) => (Array.isArray(value) ? value.length > 0 : Boolean(value) && typeof value !== "object");

export class ResourceList {
  #items = [];
  #pages = 1;
  #drawn = "";
  #opened = new Map(); // by id: what is unfolded below a row, {element, update(item)}
  #chosen = new Set();

  /** `context` has attempt(act), showSecret(about, texts), getHeading() and onFilter(values). */
  constructor(resource, rpcs, context) {
    this.resource = resource;
    this.rpcs = rpcs;
    this.context = context;
    const { labels } = rpcs[resource.list];
    this.columns = resource.columns.map((column) => {
      if (Array.isArray(column)) return column;
      const [field, head] = column.split(":");
      return [head ?? labels[field], (item) => formatField(field, item[field]), field];
    });
    this.actions = resource.actions ?? [];
    const heads = this.columns.map(([head]) => head);
    this.heads = this.actions.some(({ inRow }) => inRow) ? [...heads, ""] : heads;
    this.table = createTable(resource.label, this.heads, []);
    this.empty = createElement("p", { class: "empty", hidden: true }, resource.empty);
    this.count = createElement("p", { class: "about count", role: "status" });
    this.notice = createElement("div", {});
    this.more = createButton("Show more", () => this.#showMore(), { hidden: true });
    this.tools = this.#createTools();
    this.element = createElement("section", { class: "resource" });
    const heading = resource.title && createElement("h3", {}, resource.title);
    const about = resource.about && createElement("p", { class: "about" }, resource.about);
    const head = createElement("div", { class: "bar" }, heading || null, this.#createFilters(), this.tools);
    this.element.append(head, ...(about ? [about] : []), this.notice, this.count, this.empty, this.table, this.more);
  }

  /** Show the filters of an address. */
  setFilters(values) {
    const { elements, read } = createFields(this.#filterSchema, { ...this.resource.filterValues, ...values });
    this.#readFilters = read;
    this.filters.replaceChildren(...elements);
    this.filters.hidden = !elements.length;
  }

  async load() {
    const { resource } = this;
    const values = { ...this.resource.query, ...this.#readFilters() };
    const found = await this.#listPages(values);
    this.#items = found.items;
    this.more.hidden = !found.nextPageToken;
    const notice = resource.describe?.(found);
    const text = notice || (this.filters.hidden ? "" : formatCount(this.#items.length, resource.noun));
    if (this.count.textContent !== text) this.count.textContent = text;
    const own = resource.notice?.(found);
    if (this.notice.firstChild !== own) this.notice.replaceChildren(...(own ? [own] : []));
    const ids = new Set(this.#items.map((item) => item[resource.key]));
    for (const id of this.#opened.keys()) if (!ids.has(id)) this.#opened.delete(id);
    for (const item of this.#items) {
      if (!this.#canChoose(item)) this.#chosen.delete(item[resource.key]);
      await this.#opened.get(item[resource.key])?.update(item);
    }
    for (const id of this.#chosen) if (!ids.has(id)) this.#chosen.delete(id);
    this.#draw();
  }

  #readFilters = () => ({});

  get #filterSchema() {
    const { list, filters, properties = {} } = this.resource;
    const given = Object.entries(this.rpcs[list].schema.properties);
    const shown = given.filter(([name]) => (filters ? filters.includes(name) : !PAGING.includes(name)));
    const own = shown.map(([name, { description, ...schema }]) => [name, { ...schema, empty: "any", ...properties[name] }]);
    return { properties: Object.fromEntries(own) };
  }

  #createFilters() {
    const onchange = () => {
      this.#pages = 1;
      this.#chosen.clear();
      this.context.onFilter(this.#readFilters());
    };
    const onsubmit = (event) => event.preventDefault();
    this.filters = createElement("form", { class: "filters", "aria-label": `Filter: ${this.resource.label}`, onchange, onsubmit });
    this.setFilters({});
    return this.filters;
  }

  async #listPages(values) {
    const find = this.resource.find ?? ((query) => listRpc(this.resource.list, query));
    const items = [];
    let page = { nextPageToken: undefined };
    for (let number = 0; number < this.#pages; number += 1) {
      page = await find({ ...values, pageToken: page.nextPageToken });
      items.push(...page.items);
      if (!page.nextPageToken) break;
    }
    return { ...page, items };
  }

  #showMore() {
    this.#pages += 1;
    return this.context.attempt(() => {});
  }

  #draw() {
    const shown = JSON.stringify([this.#items, [...this.#opened.keys()], [...this.#chosen], Math.floor(Date.now() / 60_000)]);
    if (shown === this.#drawn) return; // the focus in an unfolded row is not taken away
    this.#drawn = shown;
    const rows = this.#items.flatMap((item) => this.#createRows(item));
    replaceItems(this.table.querySelector("tbody"), rows, this.context.getHeading());
    this.table.hidden = !this.#items.length;
    this.empty.hidden = this.#items.length > 0;
    this.element.hidden = Boolean(this.resource.isOptional) && !this.#items.length;
    if (!this.bulk) return;
    this.bulk.disabled = !this.#chosen.size;
    this.bulk.textContent = `${this.resource.bulk.label}${this.#chosen.size ? ` (${this.#chosen.size})` : ""}`;
  }

  #createRows(item) {
    const id = item[this.resource.key];
    const [[, createName], ...others] = this.columns;
    const cells = [this.#createName(item, createName(item)), ...others.map(([, create]) => create(item))];
    if (this.heads.length > this.columns.length) cells.push(this.#createActions(item, ({ inRow }) => inRow));
    const row = createRow(cells, this.heads);
    const opened = this.#opened.get(id);
    if (!opened) return [row];
    const cell = createElement("td", { role: "cell", colspan: this.heads.length }, opened.element);
    return [row, createElement("tr", { role: "row", class: "more" }, cell)];
  }

  #createName(item, shown) {
    const id = item[this.resource.key];
    if (this.resource.isFlat) return shown;
    const attributes = { class: "toggle", "aria-expanded": String(this.#opened.has(id)), "data-focus": `${id}:more` };
    const toggle = createButton("", () => this.#toggle(item), attributes);
    toggle.append(shown);
    if (!this.resource.bulk) return toggle;
    const onchange = ({ target }) => {
      if (target.checked) this.#chosen.add(id);
      else this.#chosen.delete(id);
      this.#draw();
    };
    const choose = { type: "checkbox", checked: this.#chosen.has(id), disabled: !this.#canChoose(item), onchange };
    const label = { "aria-label": `Select ${this.#name(item)}`, "data-focus": `${id}:choose` };
    return createElement("span", { class: "named" }, createElement("input", { ...choose, ...label }), toggle);
  }

  #name(item) {
    return this.resource.name?.(item) ?? item.name;
  }

  #canChoose(item) {
    return this.resource.bulk?.when(item) ?? false;
  }

  #toggle(item) {
    const id = item[this.resource.key];
    return this.context.attempt(() => this.#opened.delete(id) || this.#opened.set(id, this.#createDetails(item)));
  }

  /** Create the details below a row: fields that are not columns, actions, and the resource's own elements. */
  #createDetails(item) {
    const { labels } = this.rpcs[this.resource.list];
    const shown = new Set(this.columns.map(([, , field]) => field));
    const facts = createElement("div", {});
    const actions = createElement("div", {});
    const own = this.resource.details?.(item, this.context);
    const update = async (now) => {
      const rest = Object.keys(labels).filter((field) => !shown.has(field) && !this.resource.hidden?.includes(field));
      const set = rest.filter((field) => isShown(now[field]));
      facts.replaceChildren(createFacts(set.map((field) => [labels[field], formatField(field, now[field])])));
      replaceItems(actions, [this.#createActions(now, ({ inRow }) => !inRow)]);
      await own?.load?.(now);
    };
    return { element: createElement("div", { class: "details" }, facts, actions, own?.element ?? null), update };
  }

  #createActions(item, isWanted) {
    const id = item[this.resource.key];
    const buttons = this.actions
      .filter((action) => isWanted(action) && (action.when?.(item) ?? true))
      .map((action) => {
        const attributes = { "data-focus": `${id}:${action.id ?? action.label}`, "aria-label": `${action.label}: ${this.#name(item)}` };
        return createButton(action.label, () => this.#act(action, item), attributes);
      });
    return createElement("div", { class: "actions" }, ...buttons);
  }

  #act(action, item) {
    const { key, keys = [key] } = this.resource;
    if (action.edit) return this.#openEditor(action, item);
    const run = () =>
      this.context.attempt(async () => {
        const values = Object.fromEntries(keys.map((name) => [name, item[name]]));
        const answer = action.rpc && (await callRpc(action.rpc, { ...values, ...action.body }));
        await this.#finish(action, answer ?? item);
      });
    if (!action.confirm) return run();
    const attributes = { class: action.isSafe ? "primary" : "danger" };
    const asked = { title: `${action.label}: “${this.#name(item)}”?`, text: action.confirm, label: action.label };
    return openConfirmation({ ...asked, ...(action.confirm === true && { text: this.rpcs[action.rpc].about }), attributes, act: run });
  }

  /** Finish a creation or an action; a secret in the answer is shown once. */
  async #finish(act, answer) {
    if (act.done) return act.done(answer, this.context);
    const { secret, ...others } = answer ?? {};
    const [made] = Object.values(others);
    if (secret) this.context.showSecret(`The secret of ${made.name} is shown only once.`, { [`Secret of ${made.name}`]: secret });
  }

  #createTools() {
    const { creates = [], tools, bulk } = this.resource;
    const buttons = creates.map((create) =>
      createButton(create.label, () => this.#openCreator(create), { class: create.isQuiet ? "" : "primary" }),
    );
    if (bulk) {
      const act = () => openConfirmation({ ...bulk.confirm(this.#chosen.size), attributes: { class: "danger" }, act: () => this.#stopChosen() });
      this.bulk = createButton(bulk.label, act, { class: "danger", disabled: true });
      buttons.push(this.bulk);
    }
    return createElement("div", { class: "actions" }, ...buttons, ...(tools?.(this.context) ?? []));
  }

  #stopChosen() {
    return this.context.attempt(async () => {
      await this.resource.bulk.act([...this.#chosen], this.context);
      this.#chosen.clear();
    });
  }

  #makeSchema({ rpc, fields, properties = {}, required = [] }) {
    const { schema } = this.rpcs[rpc];
    const own = { ...this.resource.properties, ...properties };
    const shown = fields.filter((name) => name in schema.properties);
    return {
      properties: Object.fromEntries(shown.map((name) => [name, { ...schema.properties[name], ...own[name] }])),
      required: [...schema.required, ...required],
    };
  }

  #openCreator(create) {
    const own = create.own?.() ?? { elements: [], read: () => ({}) };
    const { elements, read } = createFields(this.#makeSchema(create), create.values);
    let answer;
    openForm({
      id: "create-title",
      title: create.label,
      above: create.about ? [createElement("p", {}, create.about)] : [],
      fields: [createElement("fieldset", {}, ...placeOwn(elements, own.elements, create))],
      leave: "Cancel",
      submit: create.submit ?? "Create",
      isDanger: create.isDanger,
      save: async () => {
        const values = { ...create.body?.(), ...read(), ...own.read() };
        answer = create.act ? await create.act(values) : await callRpc(create.rpc, values);
      },
      onSaved: () => this.context.attempt(() => this.#finish(create, answer)),
    });
  }

  #openEditor({ label, edit }, item) {
    return this.context.attempt(async () => {
      const { key } = this.resource;
      const before = edit.load ? await callRpc(edit.load, { [key]: item[key] }) : item;
      const schema = this.#makeSchema({ ...edit, required: [] });
      const own = edit.own?.(before) ?? { elements: [], read: () => ({}) };
      const { elements, read } = createFields({ ...schema, required: [] }, before);
      openForm({
        id: "edit-title",
        title: `${label}: ${this.#name(item)}`,
        fields: [createElement("fieldset", {}, ...placeOwn(elements, own.elements, edit))],
        leave: "Cancel",
        submit: "Save",
        save: () => callRpc(edit.rpc, { [key]: item[key], ...findChanges(schema, before, read()), ...own.read() }),
        onSaved: () => this.context.attempt(() => {}),
      });
    });
  }
}

/** Put the fields that a resource makes itself after the first `ownAt` of the others. */
const placeOwn = (elements, own, { ownAt = elements.length }) => [...elements.slice(0, ownAt), ...own, ...elements.slice(ownAt)];

/** Return the fields that differ; one that was emptied has the empty value of its type. */
function findChanges({ properties }, before, after) {
  const changed = Object.entries(properties).filter(([name, { type }]) => {
    const [was, is] = [before[name], after[name]].map((value) => (value === undefined ? EMPTY[type] : JSON.stringify(value)));
    return was !== is;
  });
  return Object.fromEntries(changed.map(([name, { type }]) => [name, after[name] ?? JSON.parse(EMPTY[type])]));
}
