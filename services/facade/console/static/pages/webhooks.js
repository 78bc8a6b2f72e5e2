// The page Webhooks: the receivers of the tenant's events, their deliveries, and dead letters to replay.

import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { createSelect, createTable } from "../elements/page.js";
import { callRpc, listRpc } from "../server/contract.js";
import { createPair, createState } from "./cells.js";
import { listAgentChoices } from "./choices.js";
import { createResourcePage } from "./resource_page.js";

const STATES = { dead: "dead letters", waiting: "waiting", delivered: "delivered", "": "all" };
const FIELDS = ["url", "name", "types", "agentKeys"];

const shorten = (type) => type.replace("headrace.", "");

const makeList = (agentKeys) => ({
  key: "webhookId",
  noun: "webhook",
  label: "Webhooks",
  list: "WebhookService.ListWebhooks",
  columns: [
    ["Name", ({ name, url }) => createPair(name, url), "name"],
    ["State", ({ paused, full }) => createState(full ? "full" : paused ? "paused" : "active"), "paused"],
    ["Events", ({ types = [] }) => types.map(shorten).join(", "), "types"],
    ["Agents", ({ agentKeys: keys = [] }) => keys.join(", ") || "all", "agentKeys"],
  ],
  hidden: ["webhookId", "url", "full"],
  empty: "No webhooks. Create one to send this tenant's events to another system.",
  properties: { agentKeys },
  creates: [{ label: "New webhook", rpc: "WebhookService.CreateWebhook", fields: FIELDS }],
  actions: [
    { label: "Pause", id: "pause", rpc: "WebhookService.UpdateWebhook", body: { paused: true }, when: ({ paused }) => !paused, inRow: true },
    { label: "Resume", id: "pause", rpc: "WebhookService.UpdateWebhook", body: { paused: false }, when: ({ paused }) => paused, inRow: true },
    { label: "Edit", edit: { rpc: "WebhookService.UpdateWebhook", fields: FIELDS }, inRow: true },
    { label: "Send ping", rpc: "WebhookService.PingWebhook" },
    { label: "New secret", rpc: "WebhookService.RotateSecret", isSafe: true, confirm: true },
    { label: "Delete", rpc: "WebhookService.DeleteWebhook", confirm: true },
  ],
  details: createDeliveries,
});

/** Create the list of a webhook's deliveries, with buttons to replay them. */
function createDeliveries({ webhookId, name }, { attempt }) {
  const shown = createElement("div");
  const state = createSelect("Deliveries", STATES, "", () => attempt(load));
  const replayAll = createButton("Replay all dead letters", () => replay({}), { "aria-label": `Replay all: ${name}` });
  const note = createElement("span", { class: "about", role: "status" });
  const element = createElement("div", {}, createElement("div", { class: "actions" }, state.element, replayAll, note), shown);
  let drawn = "";

  async function load() {
    const { items, nextPageToken } = await listRpc("WebhookService.ListDeliveries", { webhookId, state: state.select.value, pageSize: 100 });
    if (drawn === (drawn = JSON.stringify(items)) && shown.hasChildNodes()) return;
    const heads = ["Event", "State", "Attempts", "Last response", ""];
    const parts = items.length
      ? [createTable(`Deliveries to ${name}`, heads, items.map(createRow))]
      : [createElement("p", { class: "about" }, "No deliveries.")];
    if (nextPageToken) parts.push(createElement("p", { class: "about" }, "The newest 100 are shown."));
    shown.replaceChildren(...parts);
  }

  function createRow({ eventId, type, occurredAt, state: at, tries = 0, status, failure, agentKey }) {
    const about = [formatDate(occurredAt), agentKey].filter(Boolean).join(" · ");
    const again = () => createButton("Replay", () => replay({ eventIds: [eventId] }), { "aria-label": `Replay ${type}, ${about}` });
    return [createPair(shorten(type), about), createState(at), tries, [status, failure].filter(Boolean).join(": "), at === "waiting" ? "" : again()];
  }

  const replay = (events) =>
    attempt(async () => {
      const { count = 0 } = await callRpc("WebhookService.ReplayDeliveries", { webhookId, ...events });
      note.textContent = `${count} queued again.`;
    });

  return { element, load };
}

export const createPage = () =>
  createResourcePage({
    name: "webhooks",
    title: "Webhooks",
    about: "Other systems that receive this tenant's events.",
    lists: async () => [makeList(await listAgentChoices(true))],
  });
