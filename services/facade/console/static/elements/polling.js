// Polls the server: one request at a time, less often after failures, and not while the tab is hidden.

const PERIOD_MS_MAX = 60_000;

const GIVEN_UP = new Set([401, 403, 404, 501]); // the next answer would be the same

export class Polling {
  #isOn = false;
  #isUnderWay = false;
  #isDue = false;
  #failures = 0;
  #timer;

  /**
   * `load()` sends a request; `onProblem(error)` receives its error, or null on success. `isNeeded()` returns whether to
   * continue while the tab is hidden.
   */
  constructor(load, { periodMs, onProblem = () => {}, isNeeded = () => false }) {
    this.load = load;
    this.periodMs = periodMs;
    this.onProblem = onProblem;
    this.isNeeded = isNeeded;
    document.addEventListener("visibilitychange", () => this.#isOn && !document.hidden && this.refresh());
  }

  /** Load now, and regularly from now on. */
  start() {
    this.#isOn = true;
    return this.refresh();
  }

  stop() {
    this.#isOn = false;
    clearTimeout(this.#timer);
  }

  /** Load now, or once more after the request that is under way. */
  async refresh() {
    if (this.#isUnderWay) {
      this.#isDue = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#isUnderWay = true;
    try {
      await this.load();
      this.#failures = 0;
      this.onProblem(null);
    } catch (error) {
      this.#failures += 1;
      this.onProblem(error);
      if (GIVEN_UP.has(error.status)) this.#isOn = false;
    } finally {
      this.#isUnderWay = false;
      this.#plan();
    }
  }

  #plan() {
    const isDue = this.#isDue;
    this.#isDue = false;
    if (isDue) return this.refresh();
    if (!this.#isOn || (document.hidden && !this.isNeeded())) return undefined;
    this.#timer = setTimeout(() => this.refresh(), Math.min(this.periodMs * 2 ** this.#failures, PERIOD_MS_MAX));
    return undefined;
  }
}
