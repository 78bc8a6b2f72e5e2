// A run's events with their times: deltas of one block that follow each other are one row.

import { button, h } from "../elements/dom.js";
import { atTime, seconds, short } from "../elements/format.js";

const ROWS_MAX = 5000; // enough for hours of tool calls; the chat's history has the rest

// The fields that tell what an event is about, the first that it has.
const TOLD = "message toolName actionName agentKey delta result text reason description summary".split(" ");

export class Timeline {
  #rows = [];

  add(event) {
    const id = event.contentId ?? event.reasoningId ?? event.toolId ?? event.actionId ?? "";
    const last = this.#rows.at(-1);
    if (event.delta !== undefined && last?.type === event.type && last.id === id) {
      last.last = event.timestamp;
      last.lastSeq = event.seq;
      last.count += 1;
      last.chars += event.delta.length;
    } else if (this.#rows.length < ROWS_MAX) {
      this.#rows.push(row(event, id));
    }
  }

  open() {
    const start = this.#rows[0]?.first ?? 0;
    const head = ["Time", "After", "Seq", "Event", "Where", "What"].map((title) => h("th", { scope: "col" }, title));
    const rows = this.#rows.map((row) => h("tr", {}, ...cells(row, start).map((text) => h("td", {}, text))));
    const table = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
    const close = button("Close", () => dialog.close(), { class: "primary" });
    const body = h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Events" }, table);
    const dialog = h("dialog", { class: "timeline", "aria-labelledby": "timeline-title" });
    dialog.append(h("header", {}, h("h2", { id: "timeline-title" }, "Timeline"), close), body);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}

function row(event, id) {
  const { type, seq, timestamp: time, delta = "", subagentId, taskId } = event;
  const gist = TOLD.map((field) => event[field]).find((value) => typeof value === "string") ?? "";
  const where = subagentId ?? taskId ?? "";
  const extent = { seq, lastSeq: seq, first: time, last: time, count: 1, chars: delta.length };
  return { type, id, where, ...extent, gist: short(gist, 80) };
}

function cells(row, start) {
  const times = row.count > 1 ? ` × ${row.count}, ${row.chars} characters in ${seconds(row.last - row.first)}` : "";
  const seqs = row.count > 1 ? `${row.seq}–${row.lastSeq}` : String(row.seq);
  return [atTime(row.first), seconds(row.first - start), seqs, row.type + times, row.where, row.gist];
}
