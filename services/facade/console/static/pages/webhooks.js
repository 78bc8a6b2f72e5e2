// The page Webhooks: where the tenant's events are sent, what became of deliveries, and dead letters to replay.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import {
  createAttempt,
  createField,
  createFoldedForm,
  createFrame,
  createMark,
  createSelect,
  createTable,
  replaceItems,
} from "../elements/page.js";
import { createSecretBox } from "../elements/secret_box.js";
import * as api from "../server/api.js";

const TYPES = [
  "headrace.run.ended",
  "headrace.gate.opened",
  "headrace.gate.reminded",
  "headrace.gate.escalated",
  "headrace.gate.expiring",
  "headrace.budget.warning",
];
const STATES = { dead: "dead letters", waiting: "waiting", delivered: "delivered", "": "all" };
const STATE_MARKS = { dead: "bad", waiting: "warn", delivered: "good" };

export function createPage() {
  const list = createElement("ul", { class: "cards", "aria-label": "Webhooks" });
  const empty = createElement("p", { hidden: true }, "No webhooks yet.");
  const secret = createSecretBox(() => element.querySelector("h2"));
  const opened = new Map(); // by id: the open deliveries of a webhook
  const { element, showProblem } = createFrame(
    {
      title: "Webhooks",
      about: "Other systems that receive this tenant's events.",
      tools: [createButton("Refresh", () => load())],
      className: "webhooks",
    },
    createForm(async (made) => {
      showSecret(made);
      await load();
    }),
    secret.element,
    empty,
    list,
  );

  const attempt = createAttempt(showProblem, load);

  async function load() {
    try {
      const webhooks = (await api.getData("/api/webhooks")) ?? [];
      const ids = new Set(webhooks.map(({ webhookId }) => webhookId));
      for (const id of opened.keys()) if (!ids.has(id)) opened.delete(id);
      await Promise.all([...opened.values()].map((deliveries) => deliveries.load()));
      replaceItems(list, webhooks.map(createItem), element.querySelector("h2"));
      empty.hidden = webhooks.length > 0;
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  /** Show a secret this once: the server does not tell it again. */
  function showSecret({ webhook, secret: text }) {
    if (!text) return;
    const about = `The secret of ${webhook.name} signs its requests. It is shown only once.`;
    secret.show(about, { [`Secret of ${webhook.name}`]: text });
  }

  function createItem(webhook) {
    const { webhookId, name, url, types = [], agentKeys = [], paused, full } = webhook;
    const isOpen = opened.has(webhookId);
    const createAction = (label, act, id) =>
      createButton(label, act, { "data-focus": `${webhookId}:${id}`, "aria-label": `${label}: ${name}` });
    const change = (path, body) => attempt(() => api.postData(path, { webhookId, ...body }));
    const told = types.map((type) => type.replace("headrace.", "")).join(", ");
    return createElement(
      "li",
      {},
      createElement(
        "h3",
        {},
        name,
        paused ? createMark("paused", "warn") : null,
        full ? createMark("full: new events are dropped", "bad") : null,
      ),
      createElement("p", { class: "url" }, url),
      createElement("p", { class: "about" }, `${told} · ${agentKeys.length ? agentKeys.join(", ") : "all agents"}`),
      createElement(
        "div",
        { class: "actions" },
        createAction(paused ? "Resume" : "Pause", () => change("/api/webhook", { paused: !paused }), "pause"),
        createAction("Send ping", () => change("/api/webhook/ping", {}), "ping"),
        createAction(isOpen ? "Hide deliveries" : "Deliveries", () => toggleDeliveries(webhook), "deliveries"),
        createAction("New secret", () => confirmRotation(webhook), "secret"),
        createAction("Delete", () => confirmDeletion(webhook), "delete"),
      ),
      isOpen ? opened.get(webhookId).element : null,
    );
  }

  function toggleDeliveries({ webhookId, name }) {
    return attempt(() => {
      if (!opened.delete(webhookId)) opened.set(webhookId, createDeliveries(webhookId, name, showProblem));
    });
  }

  function confirmRotation({ webhookId, name }) {
    openConfirmation({
      title: `Rotate the secret of “${name}”?`,
      text: "The current secret also signs for one more day; any older one no longer does.",
      label: "New secret",
      attributes: { class: "primary" },
      act: () => attempt(async () => showSecret(await api.postData("/api/webhook/secret", { webhookId }))),
    });
  }

  function confirmDeletion({ webhookId, name }) {
    openConfirmation({
      title: `Delete “${name}”?`,
      text: "Its deliveries are deleted too; waiting ones will not be delivered.",
      label: "Delete",
      attributes: { class: "danger" },
      act: () => attempt(() => api.deleteData("/api/webhook", { webhookId })),
    });
  }

  return { element, show: load, hide() {} };
}

/** Create the list of a webhook's deliveries, dead letters first of all, with what delivers them again. */
function createDeliveries(webhookId, name, showProblem) {
  const shown = createElement("div");
  const state = createSelect("Show", STATES, "dead", () => attempt(load));
  const replayAll = createButton("Replay all dead letters", () => replay({}), { "aria-label": `Replay all: ${name}` });
  const note = createElement("span", { class: "about", role: "status" });
  const element = createElement(
    "div",
    { class: "results" },
    createElement("div", { class: "actions" }, state.element, replayAll, note),
    shown,
  );

  async function attempt(act) {
    showProblem(null);
    try {
      await act();
    } catch (error) {
      showProblem(error);
    }
  }

  async function load() {
    const { deliveries = [], nextPageToken } = await api.getData("/api/webhook/deliveries", {
      webhookId,
      state: state.select.value,
      pageSize: 100,
    });
    const parts = deliveries.length
      ? [createTable(`Deliveries to ${name}`, ["event", "state", "attempts", "last response", ""], deliveries.map(createRow))]
      : [createElement("p", { class: "about" }, "No deliveries.")];
    if (nextPageToken) parts.push(createElement("p", { class: "about" }, "The newest 100 are shown."));
    shown.replaceChildren(...parts);
  }

  function createRow({ eventId, type, occurredAt, state: at, tries, status, failure, agentKey }) {
    const about = [formatDate(occurredAt), agentKey].filter(Boolean).join(" · ");
    return [
      createElement("span", {}, type.replace("headrace.", ""), createElement("small", {}, ` ${about}`)),
      createMark(at, STATE_MARKS[at]),
      String(tries ?? 0),
      [status, failure].filter(Boolean).join(": "),
      at === "waiting"
        ? ""
        : createButton("Replay", () => replay({ eventIds: [eventId] }), { "aria-label": `Replay ${type}, ${about}` }),
    ];
  }

  function replay(events) {
    return attempt(async () => {
      const { count = 0 } = await api.postData("/api/webhook/replay", { webhookId, ...events });
      note.textContent = `${count} queued again.`;
      await load();
    });
  }

  return { element, load };
}

function createForm(onMade) {
  const url = createElement("input", { type: "url", required: true, maxlength: 2048, placeholder: "https://" });
  const name = createElement("input", { type: "text", maxlength: 256, autocomplete: "off" });
  const agents = createElement("input", { type: "text", autocomplete: "off" });
  const types = TYPES.map((type) => createElement("input", { type: "checkbox", value: type, defaultChecked: true }));

  async function submit() {
    const agentKeys = agents.value.split(/[\s,]+/).filter(Boolean);
    const chosen = types.filter(({ checked }) => checked).map(({ value }) => value);
    if (!chosen.length) throw new Error("Select at least one event type.");
    const made = await api.postData("/api/webhooks", {
      url: url.value,
      types: chosen,
      ...(name.value && { name: name.value }),
      ...(agentKeys.length && { agentKeys }),
    });
    return () => onMade(made);
  }

  return createFoldedForm(
    "New webhook",
    [
      createField("URL", url, "https, on the public internet or a host that the operator has allowed"),
      createField("Name", name, "empty: the host of its URL"),
      createElement(
        "div",
        { role: "group", "aria-label": "Events" },
        ...types.map((input) => createElement("label", { class: "check" }, input, input.value.replace("headrace.", ""))),
      ),
      createField("Agents", agents, "comma-separated keys; empty: all"),
    ],
    "Create",
    submit,
  );
}
