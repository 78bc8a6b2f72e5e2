// Follows a run to its end: a lost connection is resumed after the last event.

import { RunStream } from "../client/run_stream.js";
import * as api from "../server/api.js";

const REATTACH_MS = 300_000; // then a person decides

/**
 * Pass every event of a run to `onEvent`; return after the last one, or when `signal` is aborted.
 *
 * `source` is either {query}, the body of /api/query with chatId and requestId (asking twice is then one run), or
 * {runId}. `onLost(isLost)` reports a broken connection and its return. Throws HeadraceError or ConnectionLost when no
 * retry helps.
 */
export async function followRun({ query, runId }, { onEvent, onLost, signal }) {
  const open = (runId, lastSeq, signal) =>
    runId ? api.attachToRun(runId, lastSeq, signal) : api.startQuery(query, signal);
  const options = { signal, reattachMs: REATTACH_MS, onConnection: (isConnected) => onLost(!isConnected) };
  try {
    for await (const event of new RunStream(open, options, runId)) onEvent(event);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
