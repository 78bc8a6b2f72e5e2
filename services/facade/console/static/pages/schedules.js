// The page Schedules: the user's schedules with their latest results, and actions to create, pause, trigger and delete them.

import { createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { createTable } from "../elements/page.js";
import { formatHash } from "../navigation/address.js";
import { callRpc } from "../server/contract.js";
import { createPair, createState } from "./cells.js";
import { listAgentChoices } from "./choices.js";
import { createResourcePage } from "./resource_page.js";
import { createWhenFields, describeTimes } from "./when_field.js";

const FIELDS = ["agentKey", "message", "name", "overlap", "catchUp"];
const OVERLAPS = { skip: "skip this time", queue: "start it afterwards" };
const PROPERTIES = {
  name: { title: "Name", description: "Empty: the beginning of the message." },
  message: { title: "Message to the agent", description: "{{payload}}: the data that another system posts." },
  overlap: { title: "If the previous run is still going", description: undefined, labels: OVERLAPS },
  catchUp: { title: "After an outage, start the last missed run", description: undefined },
};

const showSecret = ({ schedule: { scheduleId, name }, secret }, context) =>
  context.showSecret("Sign posts to this address with the secret. It is shown only once.", {
    [`Address of ${name}`]: new URL(`/hooks/${scheduleId}`, location.href).href,
    [`Secret of ${name}`]: secret,
  });

const makeList = (agentKey) => ({
  key: "scheduleId",
  noun: "schedule",
  label: "Schedules",
  list: "ScheduleService.ListSchedules",
  filters: [],
  columns: [
    ["Name", createName, "name"],
    "agentKey",
    ["Runs", (schedule) => createPair(describeTimes(schedule), schedule.onceAt ? formatDate(schedule.onceAt) : describeCron(schedule)), "cron"],
    ["Next", describeNext, "nextAt"],
    ["Last", ({ firings = [] }) => createElement("span", {}, ...describeFiring(firings[0])), "firings"],
  ],
  hidden: ["scheduleId", "timeZone", "onceAt", "paused", "triggeredAt", "postsWaiting", "onWebhook"],
  empty: "No schedules. Create one to run an agent every week, once, or when another system posts.",
  properties: { agentKey, ...PROPERTIES },
  creates: [
    {
      label: "New schedule",
      rpc: "ScheduleService.CreateSchedule",
      fields: FIELDS,
      values: { overlap: "skip" },
      own: createWhenFields,
      ownAt: 3,
      done: async ({ scheduleId, onWebhook }, context) =>
        onWebhook && showSecret(await callRpc("ScheduleService.RotateScheduleSecret", { scheduleId }), context),
    },
  ],
  actions: [
    { label: "Run now", rpc: "ScheduleService.TriggerSchedule", inRow: true },
    { label: "Pause", id: "pause", rpc: "ScheduleService.UpdateSchedule", body: { paused: true }, when: ({ paused }) => !paused, inRow: true },
    { label: "Resume", id: "pause", rpc: "ScheduleService.UpdateSchedule", body: { paused: false }, when: ({ paused }) => paused, inRow: true },
    { label: "Edit", edit: { rpc: "ScheduleService.UpdateSchedule", load: "ScheduleService.GetSchedule", fields: FIELDS, own: createWhenFields, ownAt: 3 } },
    { label: "New secret", rpc: "ScheduleService.RotateScheduleSecret", when: ({ onWebhook }) => onWebhook, isSafe: true, confirm: true, done: showSecret },
    { label: "Delete", rpc: "ScheduleService.DeleteSchedule", confirm: true },
  ],
  details: createResults,
});

function createName({ name, held, paused }) {
  const state = held ? "held" : paused ? "paused" : "";
  return createElement("span", {}, name, " ", state ? createState(state) : "");
}

const describeCron = ({ cron, timeZone }) => [cron, timeZone].filter(Boolean).join(" · ");

/** Describe the next time, with its zone, so that nobody takes it for one of this place. */
function describeNext({ nextAt, triggeredAt, paused, onWebhook, postsWaiting, timeZone }) {
  if (postsWaiting) return `${postsWaiting} posted, about to start`;
  if (triggeredAt) return "a triggered run is about to start";
  if (paused) return "paused";
  return nextAt ? formatDate(nextAt, timeZone || undefined) : onWebhook ? "waiting for a post" : "no more runs";
}

/** Describe a firing as nodes: its outcome, with a link to the chat. */
function describeFiring(firing) {
  if (!firing) return ["–"];
  const { dueAt, outcome, chatId, failure, passed, webhookId } = firing;
  const text = [` ${formatDate(dueAt)}`];
  if (webhookId) text.push(`, posted as ${webhookId}`);
  if (failure) text.push(`: ${failure.message || failure.code}`);
  if (passed) text.push(`, ${passed} more have passed`);
  const link = chatId ? [" ", createElement("a", { href: formatHash({ chatId }) }, "chat")] : [];
  return [createState(outcome), text.join(""), ...link];
}

function createResults({ scheduleId, name }) {
  const element = createElement("div", {});
  const load = async () => {
    const { firings = [], message } = await callRpc("ScheduleService.GetSchedule", { scheduleId });
    const rows = firings.map((firing) => [formatDate(firing.dueAt), createElement("span", {}, ...describeFiring(firing))]);
    element.replaceChildren(
      createElement("h3", {}, "Message to the agent"),
      createElement("pre", { class: "message", tabindex: 0, role: "group", "aria-label": `Message of ${name}` }, message),
      createElement("h3", {}, "Last results"),
      rows.length
        ? createTable(`Last results of ${name}`, ["Time", "Outcome"], rows)
        : createElement("p", { class: "about" }, "It has not run yet."),
    );
  };
  return { element, load };
}

export const createPage = () =>
  createResourcePage({
    name: "schedules",
    title: "Schedules",
    about: "Run agents on a schedule, or when another system posts.",
    lists: async () => [makeList(await listAgentChoices())],
  });
