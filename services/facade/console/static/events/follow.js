// Following a run to its end, whatever happens to the connection: a lost one is taken up after the last seq.

import * as api from "../server/api.js";
import { parse } from "../server/json.js";
import { frames } from "./sse.js";

const RETRIES_MAX = 30; // with the waits below about five minutes; then a person decides
const WAIT_MS = 500;
const WAIT_MS_MAX = 10_000;

/**
 * Give every event of a run to `onEvent`; returns after the last one, or when `signal` is aborted.
 *
 * `from` is either {query}, the body of /api/query with chatId and requestId (asking twice is then one run), or
 * {runId}. `onLost(isLost)` tells of a broken connection and of its return. Raises ApiError or Lost when no
 * retry helps.
 */
export async function follow(from, { onEvent, onLost, signal }) {
  const at = { runId: from.runId, lastSeq: 0, failures: 0 };
  for (;;) {
    try {
      const response = await open(from, at, signal);
      if (at.failures) onLost(false);
      if (await read(response, at, onEvent)) return;
    } catch (error) {
      if (signal.aborted) return;
      // A query that was refused is for the person who asked; a run that has begun is worth coming back for.
      const mayPass = error instanceof api.Lost || (error instanceof api.ApiError && error.canRetry && at.runId);
      if (!mayPass || at.failures >= RETRIES_MAX) throw error;
    }
    at.failures += 1;
    onLost(true);
    await pause(Math.min(WAIT_MS * 1.5 ** (at.failures - 1), WAIT_MS_MAX), signal);
    if (signal.aborted) return;
  }
}

function open(from, at, signal) {
  return at.runId ? api.attach(at.runId, at.lastSeq, signal) : api.query(from.query, signal);
}

/** Whether the stream said that there is nothing to come back for. */
async function read(response, at, onEvent) {
  for await (const data of frames(response)) {
    if (data === "[DONE]") return true;
    const event = parse(data);
    if (event.type === "run.start") at.runId ??= event.runId;
    at.lastSeq = Math.max(at.lastSeq, event.seq);
    at.failures = 0;
    onEvent(event);
  }
  return false;
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
