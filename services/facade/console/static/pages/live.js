// The page Live: the runs of the tenant, over all chats and users, with what stops one or many of them.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatAge, formatCount } from "../elements/format.js";
import { createFrame, createMark, createRow, createSelect, createTable, replaceItems } from "../elements/page.js";
import { Polling } from "../elements/polling.js";
import { formatHash, updatePageAddress } from "../navigation/address.js";
import * as api from "../server/api.js";

const PERIOD_MS = 5000;
const LISTED_MAX = 100;
const STOPPED_MAX = 200; // the server's limit for one request
const MINUTE_MS = 60_000;
const NANO_PER_USD = 1_000_000_000;

const STATES = {
  live: "running or waiting",
  running: "running",
  waiting: "waiting for a person",
  completed: "completed",
  cancelled: "cancelled",
  failed: "failed",
  all: "all",
};
const AGES = { "": "any time", 5: "over 5 minutes", 60: "over an hour", 1440: "over a day" };
const STATE_MARKS = { running: "good", waiting: "warn", failed: "bad" };
const UNFINISHED = new Set(["running", "waiting"]);

const countFormat = new Intl.NumberFormat();

export function createPage() {
  const chosen = new Set(); // ids of runs
  let runs = [];
  let ownUser = null;
  const state = createSelect("Runs", STATES, "live", changeFilters);
  const agent = createSelect("Agent", { "": "any" }, "", changeFilters);
  const age = createSelect("Began", AGES, "", changeFilters);
  const user = createElement("input", { type: "text", maxlength: 128, autocomplete: "off", onchange: changeFilters });
  const userField = createElement("label", { class: "choice" }, createElement("span", {}, "User"), user);
  const stopChosen = createButton("Stop selected", () => confirmStop([...chosen]), { class: "danger" });
  const count = createElement("p", { role: "status", class: "about" });
  const outcome = createElement("p", { role: "status" });
  const table = createTable("Runs", ["run", "state", "began", "calls", "tokens", "cost", "replica", ""], []);
  const rows = table.querySelector("tbody");
  const { element, showProblem } = createFrame(
    {
      title: "Live",
      about: "Runs of all users in the tenant.",
      tools: [state.element, agent.element, userField, age.element, stopChosen],
      className: "live-runs",
    },
    outcome,
    count,
    table,
  );
  const polling = new Polling(load, { periodMs: PERIOD_MS, onProblem: showProblem });
  listAgents();
  showChosen();

  function readFilters() {
    const isLive = state.select.value === "live";
    return { state: isLive ? "" : state.select.value, agent: agent.select.value, user: user.value, age: age.select.value };
  }

  function changeFilters() {
    updatePageAddress("live", readFilters());
    chosen.clear();
    return polling.refresh();
  }

  function show(parameters) {
    state.select.value = Object.hasOwn(STATES, parameters.state) ? parameters.state : "live";
    agent.select.value = parameters.agent ?? "";
    user.value = parameters.user ?? "";
    age.select.value = parameters.age ?? "";
    return polling.start();
  }

  async function listAgents() {
    const agents = await api.listAgents().catch(() => []); // the other filters work without them
    agent.select.append(...agents.map(({ key, name }) => createElement("option", { value: key }, name || key)));
  }

  async function load() {
    const [{ data, nextPageToken }, { user: caller }] = await Promise.all([
      api.getEnvelope("/api/operator/runs", {
        state: state.select.value === "all" ? "" : state.select.value,
        agentKey: agent.select.value,
        user: user.value.trim(),
        olderThanMs: age.select.value && Number(age.select.value) * MINUTE_MS,
        pageSize: LISTED_MAX,
      }),
      api.getIdentity(),
    ]);
    runs = data ?? [];
    ownUser = caller;
    const unfinished = new Set(runs.filter((run) => UNFINISHED.has(run.state)).map(({ runId }) => runId));
    for (const runId of chosen) if (!unfinished.has(runId)) chosen.delete(runId);
    replaceItems(rows, runs.map(createItem), element.querySelector("h2"));
    const text = nextPageToken ? `The ${LISTED_MAX} most recent.` : `${formatCount(runs.length, "run")}.`;
    if (count.textContent !== text) count.textContent = text;
    showChosen();
  }

  function createItem(run) {
    const { runId, chatId, user: owner, agentKey, state: at, reason, beganAt, modelCalls = 0 } = run;
    const name = `${agentKey}, ${owner}`;
    const canStop = UNFINISHED.has(at);
    const choose = createElement("input", {
      type: "checkbox",
      checked: chosen.has(runId),
      disabled: !canStop,
      "aria-label": `Select ${name}`,
      "data-focus": `${runId}:choose`,
      onchange: ({ target }) => {
        if (target.checked) chosen.add(runId);
        else chosen.delete(runId);
        showChosen();
      },
    });
    const about = createElement("small", {}, owner === ownUser ? "" : owner);
    const chat = owner === ownUser ? createElement("a", { href: formatHash({ chatId }) }, owner) : "";
    const tokens = (run.inputTokens ?? 0) + (run.outputTokens ?? 0);
    return createRow([
      createElement("span", { class: "named" }, choose, createElement("span", {}, agentKey, " ", about, chat)),
      createElement("span", {}, createMark(at, STATE_MARKS[at]), reason ? createElement("small", {}, reason) : null),
      `${formatAge(beganAt)} ago`,
      countFormat.format(modelCalls),
      countFormat.format(tokens),
      `$${((run.costNanoUsd ?? 0) / NANO_PER_USD).toFixed(4)}`,
      run.owner ?? "",
      canStop
        ? createButton("Stop", () => confirmStop([runId]), { "aria-label": `Stop ${name}`, "data-focus": `${runId}:stop` })
        : "",
    ]);
  }

  function showChosen() {
    stopChosen.disabled = !chosen.size;
    stopChosen.textContent = chosen.size ? `Stop selected (${chosen.size})` : "Stop selected";
  }

  function confirmStop(runIds) {
    openConfirmation({
      title: `Stop ${formatCount(runIds.length, "run")}?`,
      text: "Users will see that their runs were stopped. The output so far is kept.",
      label: "Stop",
      attributes: { class: "danger" },
      act: () => stop(runIds),
    });
  }

  async function stop(runIds) {
    try {
      const ends = [];
      for (let at = 0; at < runIds.length; at += STOPPED_MAX) {
        const body = { runIds: runIds.slice(at, at + STOPPED_MAX) };
        ends.push(...(await api.postData("/api/operator/runs/cancel", body)).runs);
      }
      outcome.textContent = describeEnds(ends);
      for (const { runId } of ends) chosen.delete(runId);
      await polling.refresh();
    } catch (error) {
      showProblem(error);
    }
  }

  return { element, show, hide: () => polling.stop() };
}

/** Describe what became of runs that were to be stopped. */
function describeEnds(ends) {
  const texts = { cancelling: "stopping", ended: "already ended", not_found: "not found", failed: "not stopped, try again" };
  const counts = Object.entries(texts).map(([status, text]) => [ends.filter((end) => end.status === status).length, text]);
  return counts.filter(([number]) => number).map(([number, text]) => `${formatCount(number, "run")} ${text}`).join(", ");
}
