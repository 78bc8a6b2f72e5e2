// Streams that a caller leaves when it has seen enough: the gates that wait, and all runs of a chat.

import type { FollowDelta, Gate, WatchGatesResponse } from "./contract.js";
import { parseJson } from "./json.js";
import { watch, type StreamOptions } from "./reading.js";

/** An event of a followed chat: with the id of its run, "" between runs, and the cursor from which to continue after it. */
export type ChatEvent = Required<FollowDelta>;

/** Yield the events of a chat's runs after `cursor`, each once and in order; `open` opens a stream after a cursor. */
export function followChat(
  open: (cursor: string, signal: AbortSignal) => Promise<Response>,
  cursor: string,
  options: StreamOptions,
): AsyncGenerator<ChatEvent, void, undefined> {
  async function* read(frames: AsyncIterable<string>): AsyncGenerator<ChatEvent, void, undefined> {
    for await (const data of frames) {
      const event = parseJson(data) as ChatEvent;
      cursor = event.cursor;
      yield event;
    }
  }
  return watch((signal) => open(cursor, signal), read, options);
}

/** Yield all gates that wait, in the server's order, first and after each change; `open` opens a stream. */
export function watchGates(
  open: (signal: AbortSignal) => Promise<Response>,
  options: StreamOptions,
): AsyncGenerator<Gate[], void, undefined> {
  return watch(open, readGates, options);
}

async function* readGates(frames: AsyncIterable<string>): AsyncGenerator<Gate[], void, undefined> {
  let gates = new Map<string, Gate>();
  let isListing = false; // the server sends a list first, and again if it has lost track
  for await (const data of frames) {
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
