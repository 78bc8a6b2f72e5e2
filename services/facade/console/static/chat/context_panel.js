// Shows the context window of the chat's next request: a bar for each kind of content, and what was left out, and why.

import * as api from "../server/api.js";
import { createActions, openDialog } from "../elements/dialog.js";
import { createButton, createElement, createHiddenText } from "../elements/dom.js";
import { formatCount, formatUsage } from "../elements/format.js";
import { createCompactionSection } from "./compaction_section.js";

const GONE = new Set(["summarised", "left_out"]);
const NAMES = {
  system: "System message",
  tools: "Tools",
  summary: "Summary",
  messages: "Messages",
  results: "Tool results",
  files: "Files",
  reminder: "Reminder",
};

const numberFormat = new Intl.NumberFormat();
const percentFormat = new Intl.NumberFormat(undefined, { style: "percent" });

/** Open the panel of a chat; with the id of a live run that run's window. */
export async function openContextPanel({ chatId, runId, agentKey }) {
  const window = await api.getContext({ chatId, runId, agentKey });
  const hasSummary = window.parts.some(({ kind }) => kind === "summary");
  const state = await api.getState(chatId);
  showDialog(window, hasSummary ? await api.getSummary(chatId) : null, state);
}

function showDialog(window, summary, state) {
  const room = window.contextWindowTokens || window.tokens || 1;
  const gone = window.parts.filter(({ state }) => GONE.has(state));
  const shown = window.parts.filter(({ state }) => !GONE.has(state));
  openDialog({ id: "context-title", title: "What the model sees", className: "context" }, (dialog) => [
    createElement("p", {}, describeWindow(window)),
    createBar(shown, room),
    createLegend(shown, room),
    gone.length ? createLeftList(gone) : createElement("p", {}, "Nothing was dropped from the window."),
    window.compaction && createCompactionSection(window.compaction),
    summary?.n && createSummaryForm(window.chatId, summary),
    Object.keys(state.state).length && createStateForm(window.chatId, state),
    window.chatUsage && createElement("p", { class: "spent" }, describeSpending(window)),
    createActions(dialog, "Close"),
  ]);
}

function describeWindow({ agentKey, model, tokens, contextWindowTokens, lastCachedRatio, compactionDue, fillRatio }) {
  const of = contextWindowTokens
    ? ` of ${numberFormat.format(contextWindowTokens)} (${percentFormat.format(tokens / contextWindowTokens)})`
    : "";
  const parts = [`${agentKey}, ${model}: ${numberFormat.format(tokens)} tokens${of}`];
  if (lastCachedRatio !== undefined) parts.push(`${percentFormat.format(lastCachedRatio)} of the last call was cached`);
  if (fillRatio) parts.push(`the chat is ${percentFormat.format(fillRatio)} full`);
  if (compactionDue) parts.push("a compaction will run before the next turn");
  return parts.join(" · ");
}

function describeSpending({ chatUsage, betweenRunsUsage }) {
  const between = betweenRunsUsage ? `; of that by summaries between runs: ${formatUsage(betweenRunsUsage)}` : "";
  return `Used in this chat: ${formatUsage(chatUsage)}${between}`;
}

/** Create one bar of all parts, as long as the window; the legend says the same in words. */
function createBar(parts, room) {
  const bar = createElement("div", { class: "stack", "aria-hidden": "true" });
  for (const { kind, tokens } of parts) {
    const part = createElement("span", { class: `part-${kind}`, title: `${NAMES[kind] ?? kind}: ${formatShare(tokens, room)}` });
    part.style.width = `${Math.min((tokens / room) * 100, 100)}%`;
    bar.append(part);
  }
  return bar;
}

const formatShare = (tokens, room) => `${formatCount(tokens, "token")} (${percentFormat.format(tokens / room)})`;

function createLegend(parts, room) {
  const rows = parts.map(({ kind, state, why, count, tokens }) => {
    const amount = `${formatShare(tokens, room)}${count > 1 ? ` · ${formatCount(count, "item")}` : ""}`;
    return createElement(
      "tr",
      { "data-kind": kind },
      createElement("th", { scope: "row" }, createElement("span", { class: `key part-${kind}` }), NAMES[kind] ?? kind),
      createElement("td", {}, amount, state === "shown" ? "" : createElement("small", {}, ` ${state}: ${why}`)),
    );
  });
  const head = createElement("caption", {}, createHiddenText("Parts of the request"));
  return createElement("table", {}, head, createElement("tbody", {}, ...rows));
}

function createLeftList(gone) {
  const items = gone.map(({ kind, state, why, count, tokens, firstN, lastN }) => {
    const lines = firstN ? `, lines ${firstN} to ${lastN}` : "";
    const what = `${numberFormat.format(count)} × ${NAMES[kind] ?? kind}, ${formatCount(tokens, "token")}${lines}`;
    return createElement("li", {}, createElement("strong", {}, state.replace("_", " ")), ` ${what}: ${why}`);
  });
  return createElement("section", {}, createElement("h3", {}, "Dropped"), createElement("ul", {}, ...items));
}

function createSummaryForm(chatId, { n, text }) {
  return createTextForm("The summary", "Summary", text, (changed) => api.editSummary(chatId, n, changed));
}

function createStateForm(chatId, { version, state }) {
  let expected = version;
  return createTextForm("The session state", "Session state", JSON.stringify(state, null, 2), async (changed) => {
    expected = await api.updateState(chatId, expected, JSON.parse(changed));
  });
}

/** Create a form that passes the changed text to `saveText`, and shows its errors. */
function createTextForm(title, label, text, saveText) {
  const field = createElement("textarea", { rows: 8, "aria-label": label });
  field.value = text;
  const note = createElement("span", { role: "status" });
  const save = async () => {
    note.textContent = "";
    try {
      await saveText(field.value);
      note.textContent = " Saved: the next request has it.";
    } catch (error) {
      note.textContent = ` ${error.message}`;
    }
  };
  const row = createElement("p", {}, createButton("Save", save, { "aria-label": `Save: ${label}` }), note);
  return createElement("details", {}, createElement("summary", {}, title), field, row);
}
