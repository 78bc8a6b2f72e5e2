// The page Keys: the tenant's API keys, with secrets that are shown only once.

import { createResourcePage } from "./resource_page.js";

const SCOPES = {
  ask: "ask: run agents",
  answer: "answer: approve and reply",
  operate: "operate: see and stop all runs",
  read_content: "read content: read others' chats",
  publish: "publish: change agents",
  admin: "admin: keys, webhooks, data, audit",
};
const FIELDS = ["name", "user", "kind", "scopes", "roles", "expiresAt", "runsMax", "requestsPerMinute"];

const isOver = ({ state }) => state === "revoked" || state === "expired";

const LIST = {
  key: "keyId",
  noun: "key",
  label: "Keys",
  list: "KeyService.ListKeys",
  columns: ["name", "user", "state", "scopes", "roles", "expiresAt"],
  hidden: ["keyId", "updatedAt"],
  empty: "No keys. Create one for each program and person, so that each can be limited and revoked on its own.",
  properties: { scopes: { labels: SCOPES } },
  creates: [
    { label: "New key", rpc: "KeyService.CreateKey", fields: FIELDS, values: { kind: "person", scopes: ["ask", "answer"] } },
  ],
  actions: [
    { label: "Edit", inRow: true, when: (key) => !isOver(key), edit: { rpc: "KeyService.UpdateKey", fields: FIELDS } },
    { label: "Confirm", rpc: "KeyService.ConfirmKey", when: ({ state }) => state === "unconfirmed", inRow: true },
    { label: "Disable", id: "able", rpc: "KeyService.UpdateKey", body: { disabled: true }, when: ({ state }) => state === "active" },
    { label: "Enable", id: "able", rpc: "KeyService.UpdateKey", body: { disabled: false }, when: ({ state }) => state === "disabled" },
    { label: "Revoke", rpc: "KeyService.RevokeKey", inRow: true, when: (key) => !isOver(key), confirm: true },
  ],
};

export const createPage = () =>
  createResourcePage({
    name: "keys",
    title: "Keys",
    about: "API keys of this tenant. A disabled or revoked key stops working within five seconds.",
    lists: () => [LIST],
  });
