// Shows events that take one line: notices, sources, files, compactions, retries.

import { createButton, createElement, createLink } from "../elements/dom.js";
import { formatCompaction, formatCount, formatSize, formatUsage } from "../elements/format.js";
import { showText } from "../elements/shown_text.js";
import { createStepLine } from "../people/gate_step.js";

const createLine = (kind, ...children) => createElement("p", { class: `line ${kind}` }, ...children);
const formatTokenChange = (event) => `${formatCompaction(event)}${formatReceipt(event.receipt)}`;

function formatReceipt({ replacedMessages, firstLine, lastLine, usage } = {}) {
  const parts = [];
  if (replacedMessages) parts.push(`lines ${firstLine}–${lastLine}, ${formatCount(replacedMessages, "message")}`);
  if (usage) parts.push(formatUsage(usage));
  return parts.map((part) => ` · ${part}`).join("");
}

function createNotice({ message, code }, { askAgain, isRecorded }) {
  const line = createLine("notice", message, " ", createElement("code", {}, code));
  // Styles show it below the chat's last run alone, once that has ended.
  if (code === "CHAT_NEARLY_FULL" && !isRecorded)
    line.append(" ", createButton("Compact now", () => askAgain("/compact"), { class: "quiet" }));
  return line;
}

/** Functions that create an event's line, by event type; arguments are the event and the actions on its run. */
export const LINE_BUILDERS = {
  "run.notice": createNotice,
  "source.snapshot": (event) =>
    createLine("source", "Source: ", createLink(event.url ?? "", event.title || event.url || event.sourceId)),
  "artifact.publish": (event) =>
    createLine(
      "artifact",
      "File: ",
      createLink(event.url, event.name),
      ` ${event.mimeType}, ${formatSize(event.sizeBytes)}`,
    ),
  "request.upload": ({ upload }) =>
    createLine(
      "uploaded",
      createElement("strong", {}, "Uploaded: "),
      `${upload.name} ${upload.mimeType}, ${formatSize(upload.sizeBytes)}`,
    ),
  "request.steer": (event) => createLine("steered", createElement("strong", {}, "You added: "), event.message),
  "gate.step": createStepLine,
  "grant.make": ({ toolName, scope, madeBy, grantId }) =>
    createLine("gate-step", `approved in advance by ${madeBy.join(", ")}: ${showText(toolName)}, for this ${scope} (${grantId})`),
  "grant.use": ({ toolName, grantId }) =>
    createLine("gate-step", `${showText(toolName)} runs without asking: it was approved in advance (${grantId})`),
  "compaction.start": () => createLine("compaction", "Waiting for a summary of the older messages…"),
  "compaction.complete": (event) =>
    createLine("compaction", `Older messages were summarised: ${formatTokenChange(event)}`),
  "compaction.fallback": (event) =>
    createLine(
      "compaction",
      `The summary failed (${event.reason}); the oldest messages were left out: ${formatTokenChange(event)}`,
    ),
  "compaction.fail": (event) => createLine("compaction", `Nothing was summarised: ${event.reason}`),
  "attempt.reset": (event) => createLine("notice", `Retrying the last output: ${event.reason}`),
};
