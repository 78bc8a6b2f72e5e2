// Follows a run to its end: a lost connection is resumed after the last seq.

import * as api from "../server/api.js";
import { parseJson } from "../server/json.js";
import { readFrames } from "./sse.js";

const RETRIES_MAX = 30; // about five minutes with the delays below; then a person decides
const WAIT_MS = 500;
const WAIT_MS_MAX = 10_000;

/**
 * Pass every event of a run to `onEvent`; return after the last one, or when `signal` is aborted.
 *
 * `source` is either {query}, the body of /api/query with chatId and requestId (asking twice is then one run), or
 * {runId}. `onLost(isLost)` reports a broken connection and its return. Throws ApiError or ConnectionLost when no
 * retry helps.
 */
export async function followRun(source, { onEvent, onLost, signal }) {
  const position = { runId: source.runId, lastSeq: 0, failures: 0 };
  for (;;) {
    try {
      const response = await openStream(source, position, signal);
      if (position.failures) onLost(false);
      if (await readStream(response, position, onEvent)) return;
    } catch (error) {
      if (signal.aborted) return;
      // A refused query is shown to the person who asked; a run that has begun is worth a retry.
      const canRetry =
        error instanceof api.ConnectionLost || (error instanceof api.ApiError && error.canRetry && position.runId);
      if (!canRetry || position.failures >= RETRIES_MAX) throw error;
    }
    position.failures += 1;
    onLost(true);
    await sleep(Math.min(WAIT_MS * 1.5 ** (position.failures - 1), WAIT_MS_MAX), signal);
    if (signal.aborted) return;
  }
}

function openStream(source, position, signal) {
  return position.runId
    ? api.attachToRun(position.runId, position.lastSeq, signal)
    : api.startQuery(source.query, signal);
}

/** Read the events of one connection; return true after [DONE], when there is nothing to resume. */
async function readStream(response, position, onEvent) {
  for await (const data of readFrames(response)) {
    if (data === "[DONE]") return true;
    const event = parseJson(data);
    if (event.type === "run.start") position.runId ??= event.runId;
    position.lastSeq = Math.max(position.lastSeq, event.seq);
    position.failures = 0;
    onEvent(event);
  }
  return false;
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
