// What a run tells in one line: notices, sources, files, compactions, retries.

import { h, link } from "../elements/dom.js";
import { count, size } from "../elements/format.js";

const line = (kind, ...children) => h("p", { class: `line ${kind}` }, ...children);
const tokens = (event) => `${count(event.preTokens, "token")} → ${count(event.postTokens, "token")}`;

/** The line of each event type that is one. */
export const LINES = {
  "run.notice": (event) => line("notice", event.message, " ", h("code", {}, event.code)),
  "source.snapshot": (event) =>
    line("source", "Source: ", link(event.url ?? "", event.title || event.url || event.sourceId)),
  "artifact.publish": (event) =>
    line("artifact", "File: ", link(event.url, event.name), ` ${event.mimeType}, ${size(event.sizeBytes)}`),
  "request.steer": (event) => line("steered", h("strong", {}, "You added: "), event.message),
  "compaction.start": () => line("compaction", "Older messages are being summarised…"),
  "compaction.complete": (event) => line("compaction", `Older messages were summarised: ${tokens(event)}`),
  "compaction.fallback": (event) =>
    line("compaction", `The summary failed (${event.reason}); the oldest messages were left out: ${tokens(event)}`),
  "compaction.fail": (event) => line("compaction", `Nothing was summarised: ${event.reason}`),
  "attempt.reset": (event) => line("notice", `What was said last is being tried again: ${event.reason}`),
};
