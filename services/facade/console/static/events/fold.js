// Folds a run's events into its state: texts, calls, results, the end. headrace/fold.py folds them the same way;
// tests/fold_cases.json holds both to the same cases.
// A start or a snapshot of a known id replaces that block, a delta appends to it. An attempt.reset drops the blocks of
// its own scope (the run itself, a task, a sub-agent) that began after fromSeq.

export const TERMINAL = new Set(["run.complete", "run.cancel", "run.error"]);

const ID_FIELDS = { reasoning: "reasoningId", content: "contentId", tool: "toolId", action: "actionId" };

/** Return the id of the event's block; undefined if it belongs to none. */
export function getBlockId(event) {
  return event[ID_FIELDS[getKind(event)]];
}

/** Return the event's type up to its dot: content, tool, run … */
export function getKind(event) {
  return event.type.slice(0, event.type.indexOf("."));
}

export class Fold {
  #earlierBlocks = new Map();

  constructor() {
    this.blocks = new Map();
    this.end = null;
  }

  apply(event) {
    if (event.type === "run.start") {
      this.#earlierBlocks = new Map([...this.#earlierBlocks, ...this.blocks]);
      this.blocks = new Map();
      this.end = null;
    }
    if (getKind(event) in ID_FIELDS) {
      this.#applyToBlock(event);
    } else if (event.type === "attempt.reset") {
      for (const [id, block] of this.blocks) {
        if (isDropped(block, event)) this.blocks.delete(id);
      }
    } else if (TERMINAL.has(event.type)) {
      const { timestamp: _, ...end } = event;
      this.end = end;
    }
  }

  /** Return the state as plain values. */
  toState() {
    const blocks = new Map([...this.#earlierBlocks, ...this.blocks]);
    const withoutOpening = [...blocks].map(([id, { opening: _, ...block }]) => [id, block]);
    return { blocks: Object.fromEntries(withoutOpening), end: this.end };
  }

  #applyToBlock(event) {
    const kind = getKind(event);
    const id = getBlockId(event);
    const part = event.type.slice(kind.length + 1);
    if (part === "start" || part === "snapshot") {
      const text = (part === "snapshot" && event.text) || "";
      const { seq, subagentId, taskId } = event;
      const block = { kind, text, name: event[`${kind}Name`] ?? null, opening: { seq, subagentId, taskId } };
      if (kind === "content") block.isAnswer = event.isAnswer ?? (!subagentId && !taskId);
      if (part === "snapshot" && kind === "tool") block.params = event.toolParams ?? null;
      this.blocks.set(id, block);
      return;
    }
    const block = this.blocks.get(id);
    if (!block) return; // no start of this block has come, or its kind of event is newer than this page
    if (part === "delta") block.text += event.delta;
    else if (part === "end" && kind === "tool") block.params = event.toolParams ?? null;
    else if (part === "result") Object.assign(block, { result: event.result }, kind === "tool" && { ok: event.ok });
  }
}

/** Tell whether an attempt.reset drops this block: parallel scopes have resets of their own. */
function isDropped({ opening }, { fromSeq, subagentId, taskId }) {
  return opening.seq > fromSeq && opening.subagentId === subagentId && opening.taskId === taskId;
}

export function foldEvents(events) {
  const state = new Fold();
  for (const event of events) state.apply(event);
  return state.toState();
}
