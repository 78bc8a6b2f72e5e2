// The state of a run, folded from the events of ask, attach or a chat's history; headrace/runs/fold.py folds them the same way,
// and tests/fold_cases.json holds both to the same cases.
//
// A start or a snapshot replaces a known block, a delta appends to it, and an attempt.reset drops the blocks of its scope
// (the run, a plan task or a sub-agent) that began after its fromSeq. So the same object reads on after attaching again.
/** Types of the events that end a run. */
export const TERMINAL = new Set(["run.complete", "run.cancel", "run.error"]);
const ID_FIELDS = {
    reasoning: "reasoningId",
    content: "contentId",
    tool: "toolId",
    action: "actionId",
};
/** Return the event's type up to its dot: content, tool, run … */
export const getKind = (event) => event.type.slice(0, event.type.indexOf("."));
/** Return the id of the event's block; undefined if it belongs to none. */
export const getBlockId = (event) => event[ID_FIELDS[getKind(event)] ?? ""];
/** The state of a run, or of a chat's runs, after the events so far. */
export class Fold {
    runId = "";
    chatId = "";
    /** The current run's highest sequence number, to attach again with. */
    lastSeq = 0;
    /** Each plan's latest tasks, by plan id. */
    plans = new Map();
    tasks = new Map();
    subagents = new Map();
    /** The current run's terminal event; null while it continues. */
    end = null;
    #blocks = new Map();
    /** Blocks of earlier runs, which no attempt.reset drops. */
    #earlierBlocks = new Map();
    /** All blocks by id, in order of beginning; not to be changed. */
    get blocks() {
        return this.#earlierBlocks.size ? new Map([...this.#earlierBlocks, ...this.#blocks]) : this.#blocks;
    }
    /** The current run's answer: the text after its last call, without its planner, sub-agents and tasks. */
    get answer() {
        let answer = "";
        for (const block of this.#blocks.values()) {
            if (isCall(block) && !block.subagentId && !block.taskId)
                answer = "";
            else if (block.isAnswer)
                answer += block.text;
        }
        return answer;
    }
    /** Return a block of the current run. */
    getBlock(id) {
        return this.#blocks.get(id);
    }
    /** Take the next event; unknown ones change nothing. */
    apply(event) {
        this.lastSeq = Math.max(this.lastSeq, event.seq);
        const kind = getKind(event);
        if (kind in ID_FIELDS)
            this.#applyToBlock(kind, event);
        else if (event.type === "attempt.reset")
            this.#dropBlocks(event);
        else if (kind === "plan" || kind === "task" || kind === "subagent")
            this.#applyToTask(event);
        else
            this.#applyToRun(event);
    }
    /** Return the state as plain values, in the form of tests/fold_cases.json. */
    toState() {
        const { timestamp: _, ...end } = (this.end ?? {});
        return {
            runId: this.runId,
            chatId: this.chatId,
            lastSeq: this.lastSeq,
            blocks: Object.fromEntries([...this.blocks].map(([id, block]) => [id, describeBlock(block)])),
            plans: Object.fromEntries(this.plans),
            tasks: Object.fromEntries(this.tasks),
            subagents: Object.fromEntries(this.subagents),
            answer: this.answer,
            end: this.end && end,
        };
    }
    #applyToBlock(kind, event) {
        const id = getBlockId(event);
        const part = event.type.slice(kind.length + 1);
        const fields = event;
        if (part === "start" || part === "snapshot") {
            this.#blocks.set(id, openBlock(kind, id, event, part === "snapshot"));
            return;
        }
        const block = this.#blocks.get(id);
        if (!block)
            return; // no start of this block has come, or its kind of event is newer than this package
        if (part === "delta" || part === "args")
            block.text += fields.delta;
        else if (part === "end" || part === "param") {
            block.isComplete = true;
            block.params = fields.toolParams ?? fields.param ?? null;
        }
        else if (part === "result") {
            block.result = fields.result;
            block.ok = fields.ok ?? true;
        }
    }
    #dropBlocks({ fromSeq, subagentId = "", taskId = "" }) {
        for (const [id, block] of this.#blocks) {
            const isOfScope = block.subagentId === subagentId && block.taskId === taskId;
            if (isOfScope && block.seq > fromSeq)
                this.#blocks.delete(id);
        }
    }
    #applyToTask(event) {
        switch (event.type) {
            case "plan.create":
            case "plan.update":
                this.plans.set(event.planId, event.plan ?? []);
                break;
            case "task.start":
                this.tasks.set(event.taskId, {
                    ...{ subagentId: event.subagentId ?? "", name: event.taskName ?? "", description: event.description ?? "" },
                    ...{ status: "started", summary: "", error: null },
                });
                break;
            case "task.complete":
                update(this.tasks, event.taskId, { status: "completed", summary: event.summary ?? "" });
                break;
            case "task.cancel":
                update(this.tasks, event.taskId, { status: "canceled" });
                break;
            case "task.fail":
                update(this.tasks, event.taskId, { status: "failed", error: event.error ?? null });
                break;
            case "subagent.start": {
                const { parentId, taskId = "", agentKey, depth, goal } = event;
                this.subagents.set(event.subagentId, { parentId, taskId, agentKey, depth, goal, ok: null, summary: "" });
                break;
            }
            case "subagent.end":
                update(this.subagents, event.subagentId, { ok: event.ok, summary: event.summary });
                break;
        }
    }
    #applyToRun(event) {
        if (event.type === "request.query" || event.type === "chat.start")
            this.chatId = event.chatId || this.chatId;
        else if (event.type === "run.start" && event.runId !== this.runId) {
            this.#earlierBlocks = new Map(this.blocks);
            this.#blocks = new Map();
            this.runId = event.runId;
            this.chatId = event.chatId || this.chatId;
            this.lastSeq = event.seq;
            this.end = null;
        }
        else if (TERMINAL.has(event.type))
            this.end = event;
    }
}
export function foldEvents(events) {
    const state = new Fold();
    for (const event of events)
        state.apply(event);
    return state;
}
function openBlock(kind, id, event, isWhole) {
    const fields = event;
    const { seq, subagentId = "", taskId = "" } = event;
    const written = fields.arguments === undefined ? "" : JSON.stringify(fields.arguments);
    const isText = kind === "content" || kind === "reasoning";
    return {
        ...{ kind, id, seq, subagentId, taskId },
        name: fields[`${kind}Name`] ?? "",
        toolType: fields.toolType ?? "",
        toolApi: fields.toolApi ?? "",
        text: (isWhole && (isText ? fields.text : written)) || "",
        isAnswer: kind === "content" && (fields.isAnswer ?? (!subagentId && !taskId)),
        isComplete: isWhole,
        params: isWhole ? (fields.toolParams ?? null) : null,
        ...{ result: null, ok: true },
    };
}
const isCall = ({ kind }) => kind === "tool" || kind === "action";
function update(states, id, changes) {
    const state = states.get(id);
    if (state)
        Object.assign(state, changes);
}
function describeBlock(block) {
    const { kind, text, name, isComplete, isAnswer, params, result, ok } = block;
    return {
        ...{ kind, text, name: name || null, isComplete },
        ...(kind === "content" && { isAnswer }),
        ...(isCall(block) && isComplete && { params }),
        ...(result !== null && { result }),
        ...(result !== null && kind === "tool" && { ok }),
    };
}
