// Follows a run to its end, or a chat while it is shown. A lost connection is resumed after the last event.

import { RunStream } from "../client/run_stream.js";
import { followChat as followEvents } from "../client/watches.js";
import * as api from "../server/api.js";

const REATTACH_MS = 300_000; // then a person decides

/**
 * Pass every event of a query's run to `onEvent`; return after the last one, or when `signal` is aborted.
 *
 * `query` is the body of /api/query with chatId and requestId: asking twice is then one run. `onLost(isLost)` reports a
 * broken connection and its return. Throws HeadraceError or ConnectionLost when no retry helps.
 */
export async function followRun(query, { onEvent, onLost, signal }) {
  const open = (runId, lastSeq, signal) =>
    runId ? api.attachToRun(runId, lastSeq, signal) : api.startQuery(query, signal);
  const options = { signal, reattachMs: REATTACH_MS, onConnection: (isConnected) => onLost(!isConnected) };
  try {
    for await (const event of new RunStream(open, options)) {
      if (signal.aborted) return; // these have come along with the one at which it was
      onEvent(event);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/**
 * Pass every event of a chat after `cursor`, with its own, to `onEvent(event, cursor)`, until `signal` is aborted.
 *
 * There is no connection while the page is hidden: a browser has six of them to a server for all its tabs. Throws
 * HeadraceError or ConnectionLost when no retry helps.
 */
export async function followChat(chatId, cursor = "", { onEvent, onLost, signal }) {
  const open = (cursor, signal) => api.followChat(chatId, cursor, signal);
  const onConnection = (isConnected) => onLost(!isConnected);
  while (!signal.aborted) {
    const shown = document.hidden ? null : new AbortController();
    const change = waitForVisibility(signal).then(() => shown?.abort());
    if (!shown) {
      await change;
      continue;
    }
    const options = { signal: AbortSignal.any([signal, shown.signal]), reattachMs: REATTACH_MS, onConnection };
    try {
      for await (const event of followEvents(open, cursor, options)) {
        if (options.signal.aborted) break;
        cursor = event.cursor;
        onEvent(event.delta, cursor);
      }
    } catch (error) {
      if (!options.signal.aborted) throw error;
      onLost(false);
    }
  }
}

/** Return when the page is hidden or shown, or `signal` is aborted. */
function waitForVisibility(signal) {
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve, { once: true });
  });
}
