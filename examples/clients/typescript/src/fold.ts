import type { AgentDelta } from "../stubs/headrace/v1/agent_pb";

interface Block {
  seq: bigint;
  scope: string;
  text: string;
  isAnswer: boolean;
  isCall: boolean;
}

/** Sub-agent and task of the run itself. */
const RUN = "/";

/**
 * The state of a run after the events so far. A start or a snapshot replaces a block, a delta appends to it, and an
 * attempt.reset drops the blocks of its scope that began after its fromSeq: the same object reads on after attaching again.
 */
export class Fold {
  runId = "";
  lastSeq = 0n;
  /** The terminal event; undefined while the run goes on. */
  end: AgentDelta | undefined;
  private blocks = new Map<string, Block>();

  /** The run's answer so far: the text behind its last call. */
  get answer(): string {
    let answer = "";
    for (const block of this.blocks.values()) {
      if (block.isCall && block.scope === RUN) answer = "";
      else if (block.isAnswer) answer += block.text;
    }
    return answer;
  }

  /** Takes the next event; unknown ones change nothing. */
  apply(event: AgentDelta): void {
    if (event.seq > this.lastSeq) this.lastSeq = event.seq;
    const scope = `${event.subagentId ?? ""}/${event.taskId ?? ""}`;
    const open = (id: string, text: string, isAnswer: boolean, isCall = false) =>
      this.blocks.set(id, { seq: event.seq, scope, text, isAnswer, isCall });
    const { payload } = event;
    switch (payload.case) {
      case "runStart":
        if (payload.value.runId !== this.runId) { // the next run of a chat's history
          this.runId = payload.value.runId;
          this.lastSeq = event.seq;
          this.end = undefined;
          this.blocks.clear();
        }
        break;
      case "contentStart":
        open(payload.value.contentId, "", payload.value.isAnswer ?? scope === RUN);
        break;
      case "contentSnapshot":
        open(payload.value.contentId, payload.value.text, payload.value.isAnswer ?? scope === RUN);
        break;
      case "contentDelta": {
        const block = this.blocks.get(payload.value.contentId);
        if (block) block.text += payload.value.delta;
        break;
      }
      case "toolStart":
      case "toolSnapshot":
        open(payload.value.toolId, "", false, true);
        break;
      case "attemptReset":
        for (const [id, block] of this.blocks) {
          if (block.scope === scope && block.seq > payload.value.fromSeq) this.blocks.delete(id);
        }
        break;
      case "runComplete":
      case "runCancel":
      case "runError":
        this.end = event;
        break;
    }
  }
}
