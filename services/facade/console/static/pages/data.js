// The page Data: export of users' data, erasures with their receipts, and legal holds.

import { saveData } from "../elements/download.js";
import * as api from "../server/api.js";
import { createResourcePage } from "./resource_page.js";

const nameSubject = ({ user, chatId, tenant }) => (chatId ? `chat ${chatId}` : user ? `user ${user}` : `tenant ${tenant}`);
const REASON = { title: "Reason", description: "A ticket or matter without details, because it is kept." };
const USER = { title: "User", description: undefined };
const TENANT = { title: "Or the whole tenant", description: "The tenant's name, as a confirmation." };

const HOLDS = {
  key: "holdId",
  noun: "hold",
  label: "Holds",
  title: "Holds",
  list: "DataService.ListHolds",
  filters: [],
  name: nameSubject,
  columns: [["Of", nameSubject, "user"], "reason", "placedBy", "placedAt"],
  hidden: ["holdId", "tenant", "chatId"],
  empty: "No holds. A hold keeps data from being deleted and erased.",
  creates: [
    {
      label: "Place hold",
      isQuiet: true,
      rpc: "DataService.PlaceHold",
      fields: ["user", "chat", "tenant", "reason"],
      properties: { user: USER, chat: { title: "Or a chat", description: "The chat's ID." }, tenant: TENANT, reason: REASON },
      body: () => ({ requestId: api.createId() }),
      submit: "Place hold",
    },
  ],
  actions: [
    { label: "Release", rpc: "DataService.ReleaseHold", inRow: true, confirm: true },
  ],
};

const ERASURES = {
  key: "erasureId",
  noun: "erasure",
  label: "Erasures",
  title: "Erasures",
  list: "DataService.ListErasures",
  filters: [],
  name: nameSubject,
  columns: [["Of", nameSubject, "user"], "state", ["Reason", ({ reason }) => reason || "–", "reason"], "requestedBy", "requestedAt", "doneAt"],
  hidden: ["erasureId", "tenant"],
  empty: "No erasures.",
  creates: [
    {
      label: "Export data",
      isQuiet: true,
      rpc: "DataService.EraseData",
      fields: ["user"],
      properties: { user: { title: "Of user", description: "Empty: your own data. For gigabytes, use headrace data export." } },
      submit: "Save archive",
      act: async ({ user }) => saveData(await api.exportData(user), `${user ?? "me"}.tar`),
    },
    {
      label: "Erase data",
      isQuiet: true,
      about: "Runs will be stopped, and chats, files, facts, schedules and keys deleted, for everyone. This cannot be undone.",
      rpc: "DataService.EraseData",
      fields: ["user", "tenant", "reason"],
      properties: { user: USER, tenant: TENANT, reason: REASON },
      body: () => ({ requestId: api.createId() }),
      submit: "Erase",
      isDanger: true,
    },
  ],
  actions: [
    {
      label: "Save receipt",
      inRow: true,
      when: ({ state }) => state === "done",
      done: (erasure) => saveData(JSON.stringify(erasure, null, 2), `erasure-${erasure.erasureId}.json`),
    },
  ],
};

export const createPage = () =>
  createResourcePage({
    name: "data",
    title: "Data",
    about: "Personal data of this tenant's users: export it, erase it, or place a hold on it.",
    lists: () => [HOLDS, ERASURES],
  });
