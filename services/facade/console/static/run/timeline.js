// Lists a run's events with their times; consecutive deltas of one block share a row.

import { createActions, openDialog } from "../elements/dialog.js";
import { formatSeconds, formatTime } from "../elements/format.js";
import { createTable } from "../elements/page.js";
import { shortenLine, showText } from "../elements/shown_text.js";

const ROWS_MAX = 5000; // enough for hours of tool calls; the chat's history has the rest

// The first of these fields that an event has describes it.
const GIST_FIELDS = "message toolName actionName agentKey delta result text reason description summary".split(" ");

export class Timeline {
  #rows = [];

  addEvent(event) {
    const id = event.contentId ?? event.reasoningId ?? event.toolId ?? event.actionId ?? "";
    const last = this.#rows.at(-1);
    if (event.delta !== undefined && last?.type === event.type && last.id === id) {
      last.last = event.timestamp;
      last.lastSeq = event.seq;
      last.count += 1;
      last.chars += event.delta.length;
    } else if (this.#rows.length < ROWS_MAX) {
      this.#rows.push(createRow(event, id));
    }
  }

  openDialog() {
    const start = this.#rows[0]?.first ?? 0;
    const rows = this.#rows.map((row) => formatCells(row, start));
    openDialog({ id: "timeline-title", title: "Timeline", className: "timeline" }, (dialog) => [
      createTable("Events", ["Time", "After", "Seq", "Event", "Where", "What"], rows),
      createActions(dialog, "Close"),
    ]);
  }
}

function createRow(event, id) {
  const { type, seq, timestamp: time, delta = "", subagentId, taskId } = event;
  const gist = GIST_FIELDS.map((field) => event[field]).find((value) => typeof value === "string") ?? "";
  const where = subagentId ?? taskId ?? "";
  const extent = { seq, lastSeq: seq, first: time, last: time, count: 1, chars: delta.length };
  return { type, id, where, ...extent, gist: showText(shortenLine(gist, 80)) };
}

function formatCells(row, start) {
  const times =
    row.count > 1 ? ` × ${row.count}, ${row.chars} characters in ${formatSeconds(row.last - row.first)}` : "";
  const seqs = row.count > 1 ? `${row.seq}–${row.lastSeq}` : String(row.seq);
  return [formatTime(row.first), formatSeconds(row.first - start), seqs, row.type + times, row.where, row.gist];
}
