// The page Live: the runs of the tenant in all chats and of all users, with actions to stop one or many.

import { createBarChart } from "../elements/bar_chart.js";
import { createElement } from "../elements/dom.js";
import { formatAge, formatCount, formatDate, formatUsd } from "../elements/format.js";
import { Fold } from "../client/fold.js";
import { formatHash } from "../navigation/address.js";
import { Trace } from "../run/trace.js";
import * as api from "../server/api.js";
import { callRpc, listRpc } from "../server/contract.js";
import { createPair, createState } from "./cells.js";
import { listAgentChoices } from "./choices.js";
import { createResourcePage } from "./resource_page.js";

const STOPPED_MAX = 200; // the server's limit for one request
const MINUTE_MS = 60_000;
const BARS = 24; // of the chart, from the first listed run until now
const SERIES = ["running", "waiting", "completed", "cancelled", "", "failed"]; // states by the colours of the chart

const STATES = {
  live: "running or waiting",
  running: "running",
  waiting: "waiting for a person",
  completed: "completed",
  cancelled: "cancelled",
  failed: "failed",
  all: "all",
};
const AGES = { [5 * MINUTE_MS]: "5 minutes ago", [60 * MINUTE_MS]: "an hour ago", [1440 * MINUTE_MS]: "a day ago" };
const ENDS = { cancelling: "stopping", ended: "already ended", not_found: "not found", failed: "not stopped, try again" };

const isLive = ({ state }) => state === "running" || state === "waiting";
const name = ({ agentKey, user }) => `${agentKey}, ${user}`;
const STOPPING = "Users will see that their runs were stopped. The output so far is kept.";
const confirmStop = (count) => ({ title: `Stop ${formatCount(count, "run")}?`, text: STOPPING, label: "Stop" });

const makeList = (agentKey, caller) => {
  let outcome = "";
  const stop = async (runIds) => {
    const ends = [];
    for (let at = 0; at < runIds.length; at += STOPPED_MAX) {
      const { runs } = await callRpc("OperatorService.CancelRuns", { runIds: runIds.slice(at, at + STOPPED_MAX) });
      ends.push(...runs);
    }
    const counts = Object.entries(ENDS).map(([status, text]) => [ends.filter((end) => end.status === status).length, text]);
    outcome = counts.filter(([number]) => number).map(([number, text]) => `${formatCount(number, "run")} ${text}`).join(", ");
  };
  return {
    key: "runId",
    noun: "run",
    label: "Runs",
    name,
    list: "OperatorService.ListRuns",
    filters: ["state", "agentKey", "user", "olderThanMs"],
    filterValues: { state: "live" },
    properties: {
      state: { enum: Object.keys(STATES), labels: STATES, empty: null },
      agentKey,
      olderThanMs: { enum: Object.keys(AGES).map(Number), labels: AGES, title: "Began over", empty: "any time" },
    },
    find: ({ state, ...filters }) => listRpc("OperatorService.ListRuns", { ...filters, pageSize: 100, state: state === "all" ? "" : state }),
    describe: () => outcome,
    notice: createActivity(),
    columns: [
      ["Run", ({ agentKey: key, user }) => createPair(key, user), "agentKey"],
      ["State", ({ state, reason }) => createPair(createState(state), reason), "state"],
      ["Began", ({ beganAt }) => `${formatAge(beganAt)} ago`, "beganAt"],
      ["Calls", ({ modelCalls = 0 }) => modelCalls, "modelCalls"],
      ["Tokens", ({ inputTokens = 0, outputTokens = 0 }) => inputTokens + outputTokens, "tokens"],
      ["Cost", ({ costNanoUsd = 0 }) => createElement("span", { class: "number" }, formatUsd(costNanoUsd)), "costNanoUsd"],
      ["Replica", ({ owner }) => owner || "–", "owner"],
    ],
    hidden: ["user", "reason", "leaseExpiresAt"],
    empty: "No runs match.",
    bulk: { label: "Stop selected", when: isLive, confirm: confirmStop, act: stop },
    actions: [
      { label: "Trace", inRow: true, done: openTrace },
      { label: "Stop", inRow: true, when: isLive, confirm: STOPPING, done: ({ runId }) => stop([runId]) },
    ],
    details: ({ user, chatId }) => ({
      element: user === caller ? createElement("a", { href: formatHash({ chatId }) }, "Open the chat") : null,
    }),
  };
};

/** Create a function that returns the chart of the listed runs by start time; it is redrawn only if they change. */
function createActivity() {
  let drawn = "";
  let chart = null;
  return ({ items }) => {
    const key = items.map(({ runId, state }) => runId + state).join();
    if (key === drawn) return chart;
    drawn = key;
    const first = Math.min(...items.map(({ beganAt }) => beganAt));
    const step = Math.max(MINUTE_MS, Math.ceil((Date.now() - first) / BARS));
    const bars = Array.from({ length: items.length && BARS }, (_, index) => ({ label: formatDate(first + index * step), parts: [] }));
    for (const { beganAt, state } of items) {
      const { parts } = bars[Math.min(Math.floor((beganAt - first) / step), BARS - 1)];
      const part = parts.find(({ name: known }) => known === state);
      if (part) part.value += 1;
      else parts.push({ series: Math.max(SERIES.indexOf(state), 0), name: state, value: 1 });
    }
    const parts = [createBarChart("Runs by when they began", bars, String), createElement("figcaption", {}, "The listed runs by when they began")];
    chart = items.length ? createElement("figure", {}, ...parts) : null;
    return chart;
  };
}

/** Show the trace of a run of any user; texts are in it for who may read others' content. */
async function openTrace({ runId }) {
  const { events = [] } = await callRpc("OperatorService.GetRun", { runId, includeEvents: true });
  const fold = new Fold();
  const trace = new Trace((id) => fold.getBlock(id), async () => []);
  for (const event of events) {
    fold.apply(event);
    trace.addEvent(event);
  }
  trace.openDialog();
}

export const createPage = () =>
  createResourcePage({
    name: "live",
    title: "Live",
    about: "Runs of all users in the tenant.",
    lists: async () => {
      const [agents, { user }] = await Promise.all([listAgentChoices(), api.getIdentity().catch(() => ({}))]);
      return [makeList(agents, user)];
    },
  });
