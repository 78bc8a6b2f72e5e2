// The page Schedules: the user's schedules with their last results; makes, pauses, triggers and deletes them.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import {
  createField,
  createFoldedForm,
  createFrame,
  createMark,
  createSelect,
  createTable,
  replaceItems,
} from "../elements/page.js";
import { formatHash } from "../navigation/address.js";
import * as api from "../server/api.js";

const OUTCOME_MARKS = { started: "good", failed: "bad", missed: "bad" };

export function createPage() {
  const list = createElement("ul", { class: "cards", "aria-label": "Schedules" });
  const empty = createElement("p", { hidden: true }, "There is no schedule yet.");
  const results = new Map(); // by id: the open results of a schedule
  const { element, showProblem } = createFrame(
    {
      title: "Schedules",
      about: "Runs that begin at set times.",
      tools: [createButton("Refresh", () => load())],
      className: "schedules",
    },
    createForm(load),
    empty,
    list,
  );

  /** Do something to a schedule, then show the list as it is. */
  async function attempt(act) {
    showProblem(null);
    try {
      await act();
      await load();
    } catch (error) {
      showProblem(error);
    }
  }

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
        createAction(open ? "Hide results" : "Last results", () => toggleResults(scheduleId), "results"),
        createAction("Delete", () => confirmDeletion(schedule), "delete"),
      ),
      open ? createResults(name, open) : null,
    );
  }

  function toggleResults(scheduleId) {
    return attempt(() => (results.has(scheduleId) ? results.delete(scheduleId) : loadResults(scheduleId)));
  }

  function confirmDeletion({ scheduleId, name }) {
    openConfirmation({
      title: `Delete “${name}”?`,
      text: "It begins no run any more. Runs that it has begun go on, and their chats stay.",
      label: "Delete",
      attributes: { class: "danger" },
      act: () => attempt(() => api.deleteData("/api/schedule", { scheduleId })),
    });
  }

  return { element, show: load, hide() {} };
}

function describeTimes({ cron, timeZone, onceAt, agentKey, overlap }) {
  const times = onceAt ? `once, ${formatDate(onceAt)}` : `${cron} (${timeZone})`;
  return `${times} · asks ${agentKey}${overlap === "queue" ? " · queues" : ""}`;
}

function describeNext({ nextAt, triggeredAt, paused }) {
  if (triggeredAt) return "a run beside its times is about to begin";
  if (paused) return "its times pass without runs";
  return nextAt ? `next ${formatDate(nextAt)}` : "no time is left";
}

/** Describe a firing as nodes: what became of its time, with a link to the chat. */
function describe(firing) {
  if (!firing) return [];
  const { dueAt, outcome, chatId, failure, passed } = firing;
  const text = [`${outcome} ${formatDate(dueAt)}`];
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
      ? createTable(`Last results of ${name}`, ["time", "outcome", "what became of it"], rows)
      : createElement("p", { class: "about" }, "None of its times has come yet."),
  );
}

function createForm(load) {
  const agent = createElement("select", { required: true });
  const input = (attributes) => createElement("input", { autocomplete: "off", ...attributes });
  const message = createElement("textarea", { rows: 3, required: true, maxlength: 65_536 });
  const name = input({ type: "text", maxlength: 256 });
  const cron = input({ type: "text", maxlength: 256, placeholder: "30 9 * * 1-5" });
  const timeZone = input({ type: "text", maxlength: 64 });
  timeZone.defaultValue = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const onceAt = input({ type: "datetime-local" });
  const overlap = createSelect("While the last run goes on", { skip: "skip a time", queue: "queue it" }, "skip");
  const catchUp = createElement("input", { type: "checkbox" });
  const times = createSelect("Times", { cron: "repeated", once: "once" }, "cron", showTimes);
  const cronField = createField("Cron", cron, "minute hour day month weekday");
  const zoneField = createField("Time zone", timeZone);
  const onceField = createField("At", onceAt);

  function showTimes() {
    const isOnce = times.select.value === "once";
    cronField.hidden = zoneField.hidden = isOnce;
    onceField.hidden = !isOnce;
    cron.required = !isOnce;
    onceAt.required = isOnce;
  }

  async function listAgents() {
    const agents = await api.listAgents().catch(() => []); // the server refuses a schedule without an agent
    agent.replaceChildren(...agents.map(({ key, name }) => createElement("option", { value: key }, name || key)));
  }

  async function submit() {
    const isOnce = times.select.value === "once";
    await api.postData("/api/schedules", {
      ...(name.value && { name: name.value }),
      message: message.value,
      agentKey: agent.value,
      ...(isOnce ? { onceAt: new Date(onceAt.value).getTime() } : { cron: cron.value, timeZone: timeZone.value }),
      overlap: overlap.select.value,
      catchUp: catchUp.checked,
    });
    await load();
  }

  showTimes();
  listAgents();
  const form = createFoldedForm(
    "New schedule",
    [
      createField("Agent", agent),
      createField("What it is asked", message),
      createField("Name", name, "empty: the beginning of what is asked"),
      times.element,
      cronField,
      zoneField,
      onceField,
      overlap.element,
      createElement("label", { class: "check" }, catchUp, "After an outage, begin the last time that was missed"),
    ],
    "Make it",
    submit,
  );
  form.querySelector("form").addEventListener("reset", () => setTimeout(showTimes)); // after the fields are reset
  return form;
}
