// A run's events as they come, folded on the way.
//
//   const run = client.ask("Hello", { agentKey: "assistant" });
//   for await (const text of run.text()) show(text);
//   console.log(run.state.answer, run.state.end);
//
// A reader that falls far behind gets whole blocks (snapshots) instead of deltas, so deltas alone are not the answer.
// A stream that is cut, as by a server that restarts or a browser that is offline, is opened again after its last event.

import type { AgentDelta } from "./contract.js";
import { ConnectionLost } from "./errors.js";
import { Fold } from "./fold.js";
import { parseJson } from "./json.js";
import { readOn, REATTACH_MS, SILENCE_MS, type StreamOptions } from "./reading.js";
import { readFrames } from "./sse.js";

/** How long a request that has begun no run yet is sent again: with a wrong address, the caller must learn it soon. */
const BEGIN_MS_MAX = 10_000;

/** Opens a run's stream: behind `lastSeq` where it has begun, or else by its query. */
export type Open = (runId: string, lastSeq: number, signal: AbortSignal) => Promise<Response>;

/** Iterates the events; `state` is their result so far. A second iteration continues where the first stopped. */
export class RunStream implements AsyncIterable<AgentDelta> {
  readonly state = new Fold();
  readonly #open: Open;
  readonly #options: StreamOptions;
  #runId: string;
  #lastSeq: number;
  #isRead = false;
  #isOver = false;

  constructor(open: Open, options: StreamOptions = {}, runId = "", lastSeq = 0) {
    this.#open = open;
    this.#options = options;
    this.#runId = runId;
    this.#lastSeq = lastSeq;
  }

  /** The run; "" before it has begun. */
  get runId(): string {
    return this.state.runId || this.#runId;
  }

  [Symbol.asyncIterator](): AsyncGenerator<AgentDelta, void, undefined> {
    return this.events();
  }

  /** Yield the events to the run's end. Throws HeadraceError or ConnectionLost when no attempt helps any more. */
  async *events(): AsyncGenerator<AgentDelta, void, undefined> {
    if (this.#isRead) throw new Error("a run's stream has one reader at a time");
    this.#isRead = true;
    const { reattachMs = REATTACH_MS } = this.#options;
    const source = {
      open: (signal: AbortSignal) => this.#open(this.runId, Math.max(this.#lastSeq, this.state.lastSeq), signal),
      read: (response: Response) => this.#readConnection(response),
      isOver: () => this.#isOver,
      // A refusal before the run begins goes to the caller; a run that has begun is worth another attempt.
      canRetry: (error: Error & { isRetriable?: boolean }) =>
        error instanceof ConnectionLost || (error.isRetriable === true && this.runId !== ""),
      limitMs: () => (this.runId ? reattachMs : Math.min(reattachMs, BEGIN_MS_MAX)),
    };
    try {
      if (!this.#isOver) yield* readOn(source, this.#options);
    } finally {
      this.#isRead = false;
    }
  }

  /**
   * Yield the run's own text as it arrives, with a blank line between blocks.
   *
   * This includes text before tool calls, so the whole may be longer than `state.answer`. A reopened stream repeats no
   * text; a model that is asked again, because the process that owned the run has died, writes a new one. A run that
   * fails or is cancelled ends the text without an exception: see `state.end`.
   */
  async *text(): AsyncGenerator<string, void, undefined> {
    if (this.#lastSeq > 0) throw new Error("text() needs the run from its start: attach without lastSeq");
    const pieces = new Unrepeated();
    let lastId = "";
    for await (const event of this) {
      if (event.type !== "content.start" && event.type !== "content.delta" && event.type !== "content.snapshot") continue;
      const { contentId } = event;
      if (!this.state.getBlock(contentId)?.isAnswer) continue;
      if (event.type !== "content.delta") pieces.restartBlock(contentId);
      const piece = event.type === "content.start" ? "" : event.type === "content.delta" ? event.delta : event.text;
      const words = pieces.takeNew(contentId, piece);
      if (!words) continue;
      yield lastId === "" || lastId === contentId ? words : `\n\n${words}`;
      lastId = contentId;
    }
  }

  /** Read to the run's end and return its state: `answer`, calls, `end`. A failed run raises no exception. */
  async finish(): Promise<Fold> {
    for await (const _ of this);
    return this.state;
  }

  async *#readConnection(response: Response): AsyncGenerator<AgentDelta, void, undefined> {
    for await (const data of readFrames(response, this.#options.silenceMs ?? SILENCE_MS)) {
      this.#isOver ||= data === "[DONE]";
      if (this.#isOver) return;
      const event = parseJson(data) as AgentDelta;
      this.state.apply(event);
      yield event;
    }
    this.#isOver ||= this.state.end !== null;
  }
}

/** Leaves out what blocks that begin again repeat. */
class Unrepeated {
  readonly #taken = new Map<string, number>();
  readonly #repeated = new Map<string, number>(); // characters that each block still repeats

  restartBlock(id: string): void {
    this.#repeated.set(id, this.#taken.get(id) ?? 0);
  }

  takeNew(id: string, piece: string): string {
    const repeated = this.#repeated.get(id) ?? 0;
    const known = Math.min(piece.length, repeated);
    this.#repeated.set(id, repeated - known);
    this.#taken.set(id, (this.#taken.get(id) ?? 0) + piece.length - known);
    return piece.slice(known);
  }
}
