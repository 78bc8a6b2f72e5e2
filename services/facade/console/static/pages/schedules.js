// The page Schedules: the user's schedules with their last results; makes, pauses, triggers and deletes them.

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
import { formatHash } from "../navigation/address.js";
import * as api from "../server/api.js";

const OUTCOME_MARKS = { started: "good", failed: "bad", missed: "bad" };

export function createPage() {
  const list = createElement("ul", { class: "cards", "aria-label": "Schedules" });
  const empty = createElement("p", { hidden: true }, "No schedules yet.");
  const secret = createSecretBox(() => element.querySelector("h2"));
  const results = new Map(); // by id: the open results of a schedule
  const { element, showProblem } = createFrame(
    {
      title: "Schedules",
      about: "Run agents on a schedule, or when another system posts.",
      tools: [createButton("Refresh", () => load())],
      className: "schedules",
    },
    createForm(load, (scheduleId) => attempt(() => makeSecret(scheduleId))),
    secret.element,
    empty,
    list,
  );

  /** Do something to a schedule, then show the list as it is. */
  const attempt = createAttempt(showProblem, load);

  async function load() {
    try {
      const schedules = (await api.getData("/api/schedules")) ?? [];
      await Promise.all([...results.keys()].map(loadResults));
      replaceItems(list, schedules.map(createItem), element.querySelector("h2"));
      empty.hidden = schedules.length > 0;
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  /** Make a secret for a schedule's posts, and show it this once: the server does not tell it again. */
  async function makeSecret(scheduleId) {
    const { schedule, secret: text } = await api.postData("/api/schedule/secret", { scheduleId });
    secret.show("Sign posts to this address with the secret. It is shown only once.", {
      [`Address of ${schedule.name}`]: new URL(`/hooks/${scheduleId}`, location.href).href,
      [`Secret of ${schedule.name}`]: text,
    });
  }

  async function loadResults(scheduleId) {
    try {
      const { firings = [], message } = await api.getData("/api/schedule", { scheduleId });
      results.set(scheduleId, { firings, message });
    } catch (error) {
      results.delete(scheduleId);
      if (error.status !== 404) throw error;
    }
  }

  function createItem(schedule) {
    const { scheduleId, name, paused, firings = [] } = schedule;
    const open = results.get(scheduleId);
    const change = (path, body) => attempt(() => api.postData(path, { scheduleId, ...body }));
    const createAction = (label, act, id) =>
      createButton(label, act, { "data-focus": `${scheduleId}:${id}`, "aria-label": `${label}: ${name}` });
    return createElement(
      "li",
      {},
      createElement("h3", {}, name, paused ? createMark("paused", "warn") : null),
      createElement("p", {}, describeTimes(schedule)),
      createElement("p", { class: "about" }, describeNext(schedule), firings[0] && ` · last: `, ...describe(firings[0])),
      createElement(
        "div",
        { class: "actions" },
        createAction(paused ? "Resume" : "Pause", () => change("/api/schedule", { paused: !paused }), "pause"),
        createAction("Run now", () => change("/api/schedule/trigger", {}), "trigger"),
        schedule.onWebhook ? createAction("New secret", () => confirmSecret(schedule), "secret") : null,
        createAction(open ? "Hide results" : "Last results", () => toggleResults(scheduleId), "results"),
        createAction("Delete", () => confirmDeletion(schedule), "delete"),
      ),
      open ? createResults(name, open) : null,
    );
  }

  function toggleResults(scheduleId) {
    return attempt(() => (results.has(scheduleId) ? results.delete(scheduleId) : loadResults(scheduleId)));
  }

  function confirmSecret({ scheduleId, name }) {
    openConfirmation({
      title: `Rotate the secret of “${name}”?`,
      text: "The current secret is accepted for one more day.",
      label: "New secret",
      attributes: { class: "primary" },
      act: () => attempt(() => makeSecret(scheduleId)),
    });
  }

  function confirmDeletion({ scheduleId, name }) {
    openConfirmation({
      title: `Delete “${name}”?`,
      text: "It starts no more runs. Its current runs continue, and their chats are kept.",
      label: "Delete",
      attributes: { class: "danger" },
      act: () => attempt(() => api.deleteData("/api/schedule", { scheduleId })),
    });
  }

  return { element, show: load, hide() {} };
}

function describeTimes({ cron, timeZone, onceAt, onWebhook, agentKey, overlap }) {
  const set = onceAt ? [`once, ${formatDate(onceAt)}`] : cron ? [`${cron} (${timeZone})`] : [];
  const times = [...set, ...(onWebhook ? ["when another system posts"] : [])].join(", and ");
  return `${times} · asks ${agentKey}${overlap === "queue" ? " · queues" : ""}`;
}

function describeNext({ nextAt, triggeredAt, paused, onWebhook, postsWaiting }) {
  if (postsWaiting) return `${postsWaiting} posted, about to start`;
  if (triggeredAt) return "a triggered run is about to start";
  if (paused) return "paused";
  return nextAt ? `next ${formatDate(nextAt)}` : onWebhook ? "waiting for a post" : "no more runs";
}

/** Describe a firing as nodes: what became of its time, with a link to the chat. */
function describe(firing) {
  if (!firing) return [];
  const { dueAt, outcome, chatId, failure, passed, webhookId } = firing;
  const text = [`${outcome} ${formatDate(dueAt)}`];
  if (webhookId) text.push(`, posted as ${webhookId}`);
  if (failure) text.push(`: ${failure.message || failure.code}`);
  if (passed) text.push(`, ${passed} more have passed`);
  return [text.join(""), ...(chatId ? [" ", createElement("a", { href: formatHash({ chatId }) }, "chat")] : [])];
}

function createResults(name, { firings, message }) {
  const rows = firings.map((firing) => [
    formatDate(firing.dueAt),
    createMark(firing.outcome, OUTCOME_MARKS[firing.outcome]),
    createElement("span", {}, ...describe(firing)),
  ]);
  return createElement(
    "div",
    { class: "results" },
    createElement("p", { class: "message" }, message),
    firings.length
      ? createTable(`Last results of ${name}`, ["time", "outcome", "details"], rows)
      : createElement("p", { class: "about" }, "It has not run yet."),
  );
}

function createForm(load, makeSecret) {
  const agent = createElement("select", { required: true });
  const input = (attributes) => createElement("input", { autocomplete: "off", ...attributes });
  const message = createElement("textarea", { rows: 3, required: true, maxlength: 65_536 });
  const name = input({ type: "text", maxlength: 256 });
  const cron = input({ type: "text", maxlength: 256, placeholder: "30 9 * * 1-5" });
  const timeZone = input({ type: "text", maxlength: 64 });
  timeZone.defaultValue = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const onceAt = input({ type: "datetime-local" });
  const overlap = createSelect("If the previous run is still going", { skip: "skip", queue: "queue" }, "skip");
  const catchUp = createElement("input", { type: "checkbox" });
  const kinds = { cron: "repeated", once: "once", webhook: "when another system posts" };
  const times = createSelect("Times", kinds, "cron", showTimes);
  const cronField = createField("Cron", cron, "minute hour day month weekday");
  const zoneField = createField("Time zone", timeZone);
  const onceField = createField("At", onceAt);

  function showTimes() {
    const kind = times.select.value;
    cronField.hidden = zoneField.hidden = kind !== "cron";
    onceField.hidden = kind !== "once";
    cron.required = kind === "cron";
    onceAt.required = kind === "once";
  }

  async function listAgents() {
    const agents = await api.listAgents().catch(() => []); // the server refuses a schedule without an agent
    agent.replaceChildren(...agents.map(({ key, name }) => createElement("option", { value: key }, name || key)));
  }

  async function submit() {
    const given = {
      cron: () => ({ cron: cron.value, timeZone: timeZone.value }),
      once: () => ({ onceAt: new Date(onceAt.value).getTime() }),
      webhook: () => ({ onWebhook: true }),
    };
    const made = await api.postData("/api/schedules", {
      ...(name.value && { name: name.value }),
      message: message.value,
      agentKey: agent.value,
      ...given[times.select.value](),
      overlap: overlap.select.value,
      catchUp: catchUp.checked,
    });
    return () => (made.onWebhook ? makeSecret(made.scheduleId) : load());
  }

  showTimes();
  listAgents();
  const form = createFoldedForm(
    "New schedule",
    [
      createField("Agent", agent),
      createField("Message to the agent", message, "{{payload}}: the posted data"),
      createField("Name", name, "empty: the beginning of the message"),
      times.element,
      cronField,
      zoneField,
      onceField,
      overlap.element,
      createElement("label", { class: "check" }, catchUp, "After an outage, start the last missed run"),
    ],
    "Create",
    submit,
  );
  form.querySelector("form").addEventListener("reset", () => setTimeout(showTimes)); // after the fields are reset
  return form;
}
