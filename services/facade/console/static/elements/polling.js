// Asks the server again and again: one request at a time, less often after failures, not while nobody looks.

const PERIOD_MS_MAX = 60_000;

const GIVEN_UP = new Set([401, 403, 404, 501]); // asking again would be answered alike

export class Polling {
  #isOn = false;
  #isUnderWay = false;
  #isDue = false;
  #failures = 0;
  #timer;

  /**
   * `load()` asks; `onProblem(error)` gets what it throws, and null when it went well. `isNeeded()` tells whether to go
   * on while the tab is hidden.
   */
  constructor(load, { periodMs, onProblem = () => {}, isNeeded = () => false }) {
    this.load = load;
    this.periodMs = periodMs;
    this.onProblem = onProblem;
    this.isNeeded = isNeeded;
    document.addEventListener("visibilitychange", () => this.#isOn && !document.hidden && this.refresh());
  }

  /** Ask now, and from now on. */
  start() {
    this.#isOn = true;
    return this.refresh();
  }

  stop() {
    this.#isOn = false;
    clearTimeout(this.#timer);
  }

  /** Ask now; while a request is under way, once more after it. */
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
