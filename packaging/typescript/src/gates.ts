// The gates that wait: a stream that begins with all of them and then tells each change.

import type { Gate, WatchGatesResponse } from "./contract.js";
import { ConnectionLost } from "./errors.js";
import { parseJson } from "./json.js";
import { readOn, REATTACH_MS, SILENCE_MS, type StreamOptions } from "./reading.js";
import { readFrames } from "./sse.js";

/** Yield all gates that wait, in the order they were told, at first and whenever one has changed; `open` opens a stream. */
export function watchGates(
  open: (signal: AbortSignal) => Promise<Response>,
  options: StreamOptions,
): AsyncGenerator<Gate[], void, undefined> {
  const { reattachMs = REATTACH_MS, silenceMs = SILENCE_MS } = options;
  const source = {
    open,
    read: (response: Response) => readGates(response, silenceMs),
    isOver: () => false,
    canRetry: (error: Error & { isRetriable?: boolean }) => error instanceof ConnectionLost || error.isRetriable === true,
    limitMs: () => reattachMs,
  };
  return readOn(source, options);
}

async function* readGates(response: Response, silenceMs: number): AsyncGenerator<Gate[], void, undefined> {
  let gates = new Map<string, Gate>();
  let isListing = false; // a list is told at first, and again where the server has lost count
  for await (const data of readFrames(response, silenceMs)) {
    const { listBegin, gate, listEnd } = parseJson(data) as WatchGatesResponse;
    if (listBegin) {
      gates = new Map();
      isListing = true;
    }
    if (listEnd) isListing = false;
    if (gate) {
      const key = `${gate.runId}/${gate.gateId}`;
      if (gate.state === "open") gates.set(key, gate);
      else gates.delete(key);
    }
    if (!isListing) yield [...gates.values()];
  }
}
