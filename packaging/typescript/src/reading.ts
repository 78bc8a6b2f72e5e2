// Reads a stream to its end, over as many connections as that takes.

import { ConnectionLost, HeadraceError } from "./errors.js";
import { Pauses } from "./pauses.js";
import { readFrames } from "./sse.js";

export const REATTACH_MS = 60_000;
export const SILENCE_MS = 60_000;

/** A connection that lasted longer was a good one, whatever it has brought: some proxies cut every stream after a while. */
const GOOD_MS_MIN = 10_000;

export interface StreamOptions {
  /** Ends the stream: reading throws its reason. A run goes on, unless its query says `onDisconnect: "cancel"`. */
  signal?: AbortSignal;

  /** Is told when the connection is lost, and when it is back. */
  onConnection?: (isConnected: boolean) => void;

  /** How long a stream that was cut is tried to be opened again; for 0 it is not. A minute when left out. */
  reattachMs?: number;

  /** Silence after which a connection counts as lost; for 0 it never does. A minute when left out: the server sends a
   * heartbeat every 15 s. */
  silenceMs?: number;
}

/** A stream over several connections. */
export interface Source<Item> {
  open(signal: AbortSignal): Promise<Response>;
  read(response: Response): AsyncIterable<Item>;
  /** Whether a connection that has ended was the last one. */
  isOver(): boolean;
  canRetry(error: ConnectionLost | HeadraceError): boolean;
  /** How long it may be tried to be opened again. */
  limitMs(): number;
}

export async function* readOn<Item>(
  source: Source<Item>,
  { signal, onConnection, silenceMs = SILENCE_MS }: StreamOptions,
): AsyncGenerator<Item, void, undefined> {
  const pauses = new Pauses();
  for (;;) {
    let problem: unknown;
    let openedMs = Infinity;
    try {
      const response = await openWithin(silenceMs, source, signal);
      openedMs = performance.now();
      if (pauses.isCut) onConnection?.(true);
      for await (const item of source.read(response)) {
        pauses.reset();
        yield item;
      }
      if (source.isOver()) return;
      problem = new ConnectionLost("the stream has ended too early");
    } catch (error) {
      const isKnown = error instanceof ConnectionLost || error instanceof HeadraceError;
      if (signal?.aborted || !isKnown || !source.canRetry(error)) throw error;
      problem = error;
    }
    if (performance.now() - openedMs > GOOD_MS_MIN) pauses.reset();
    if (!pauses.isCut || openedMs < Infinity) onConnection?.(false);
    const leastMs = problem instanceof HeadraceError ? problem.retryAfterMs : 0;
    if (!(await pauses.wait(source.limitMs(), leastMs, signal))) throw problem;
  }
}

/** Read a stream that never ends by itself. */
export function watch<Item>(
  open: (signal: AbortSignal) => Promise<Response>,
  read: (frames: AsyncIterable<string>) => AsyncIterable<Item>,
  options: StreamOptions,
): AsyncGenerator<Item, void, undefined> {
  const { reattachMs = REATTACH_MS, silenceMs = SILENCE_MS } = options;
  const source = {
    open,
    read: (response: Response) => read(readFrames(response, silenceMs)),
    isOver: () => false,
    canRetry: (error: Error & { isRetriable?: boolean }) => error instanceof ConnectionLost || error.isRetriable === true,
    limitMs: () => reattachMs,
  };
  return readOn(source, options);
}

/** Open a connection, or give it up: one that a network has swallowed does not fail by itself. */
async function openWithin<Item>(ms: number, source: Source<Item>, signal: AbortSignal | undefined): Promise<Response> {
  const attempt = new AbortController();
  const giveUp = () => attempt.abort(new ConnectionLost(`there was no answer for ${ms} ms`));
  const timer = ms ? setTimeout(giveUp, ms) : undefined;
  try {
    return await source.open(signal ? AbortSignal.any([signal, attempt.signal]) : attempt.signal);
  } finally {
    clearTimeout(timer);
  }
}
