// The state of a run, folded from its events: texts, calls, results, the end. headrace/fold.py folds them the same way;
// tests/fold_cases.json holds both to the same cases.
// A start or a snapshot of a known id replaces that block, a delta appends to it. An attempt.reset drops the blocks of
// its own scope (the run itself, a task, a sub-agent) that began after fromSeq.

export const TERMINAL = new Set(["run.complete", "run.cancel", "run.error"]);

const ID_FIELDS = { reasoning: "reasoningId", content: "contentId", tool: "toolId", action: "actionId" };

/** The id of the block that an event belongs to; undefined when it belongs to none. */
export function blockId(event) {
  return event[ID_FIELDS[kindOf(event)]];
}

/** The part of the event's type before the dot: content, tool, run … */
export function kindOf(event) {
  return event.type.slice(0, event.type.indexOf("."));
}

export class Fold {
  #earlier = new Map();

  constructor() {
    this.blocks = new Map();
    this.end = null;
  }

  apply(event) {
    if (event.type === "run.start") {
      this.#earlier = new Map([...this.#earlier, ...this.blocks]);
      this.blocks = new Map();
      this.end = null;
    }
    if (kindOf(event) in ID_FIELDS) {
      this.#applyToBlock(event);
    } else if (event.type === "attempt.reset") {
      for (const [id, block] of this.blocks) {
        if (isLost(block, event)) this.blocks.delete(id);
      }
    } else if (TERMINAL.has(event.type)) {
      const { timestamp: _, ...end } = event;
      this.end = end;
    }
  }

  /** Everything as plain values. */
  result() {
    const blocks = new Map([...this.#earlier, ...this.blocks]);
    const withoutOpening = [...blocks].map(([id, { opening: _, ...block }]) => [id, block]);
    return { blocks: Object.fromEntries(withoutOpening), end: this.end };
  }

  #applyToBlock(event) {
    const kind = kindOf(event);
    const id = blockId(event);
    const part = event.type.slice(kind.length + 1);
    if (part === "start" || part === "snapshot") {
      const text = (part === "snapshot" && event.text) || "";
      const { seq, subagentId, taskId } = event;
      const block = { kind, text, name: event[`${kind}Name`] ?? null, opening: { seq, subagentId, taskId } };
      if (part === "snapshot" && kind === "tool") block.params = event.toolParams ?? null;
      this.blocks.set(id, block);
      return;
    }
    const block = this.blocks.get(id);
    if (!block) return; // a newer contract than ours: nothing of it was opened here
    if (part === "delta") block.text += event.delta;
    else if (part === "end" && kind === "tool") block.params = event.toolParams ?? null;
    else if (part === "result") Object.assign(block, { result: event.result }, kind === "tool" && { ok: event.ok });
  }
}

/** Whether an attempt.reset is about this block: parallel scopes have resets of their own. */
function isLost({ opening }, { fromSeq, subagentId, taskId }) {
  return opening.seq > fromSeq && opening.subagentId === subagentId && opening.taskId === taskId;
}

export function fold(events) {
  const folded = new Fold();
  for (const event of events) folded.apply(event);
  return folded.result();
}
