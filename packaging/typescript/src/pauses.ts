// When a stream that was cut is opened again.

const FIRST_PAUSE_MS = 200;
const PAUSE_MS_MAX = 5000;

/** Pauses between attempts, which double. */
export class Pauses {
  #pauseMs = FIRST_PAUSE_MS;
  #cutAtMs: number | null = null;

  /** Whether attempts are on their way. */
  get isCut(): boolean {
    return this.#cutAtMs !== null;
  }

  /** Begin anew, since something has come. */
  reset(): void {
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#cutAtMs = null;
  }

  /**
   * Wait for the next attempt, at least `leastMs`; return false where there have been some for `limitMs`. The time that a
   * browser is offline does not count, and when it is back the wait is over.
   */
  async wait(limitMs: number, leastMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    const nowMs = performance.now();
    // A server on this machine is reachable without a network, so attempts continue.
    if (globalThis.navigator?.onLine === false) this.#cutAtMs = nowMs;
    this.#cutAtMs ??= nowMs;
    if (nowMs - this.#cutAtMs >= limitMs) return false;
    // Half of the pause is random, so that the readers of a restarted server do not all return at once.
    await sleep(Math.max(leastMs, this.#pauseMs * (0.5 + Math.random() / 2)), signal);
    this.#pauseMs = Math.min(2 * this.#pauseMs, PAUSE_MS_MAX);
    return true;
  }
}

/** Wait for `ms`, or until a browser is online again, whichever is first. */
function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const end = (act: () => void) => () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", wake);
      signal?.removeEventListener("abort", leave);
      act();
    };
    const wake = end(resolve);
    const leave = end(() => reject(signal!.reason));
    const timer = setTimeout(wake, ms);
    globalThis.addEventListener?.("online", wake);
    signal?.addEventListener("abort", leave);
  });
}
