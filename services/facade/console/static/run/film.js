// Plays the events of a recorded run at their times. Going back draws the run again up to that point.

import { RunView } from "./run_view.js";

/** Actions of a run that is a recording: nothing can be done with it. */
const ACTIONS = {
  isRecorded: true,
  submit: () => Promise.reject(new Error("This is a recording: it takes no answers.")),
};

const TICK_MS = 1000; // between two pictures where people want no motion

const isDelta = ({ event }) => event.type.endsWith(".delta") || event.type.endsWith(".args");

export class Film {
  #count = 0; // of the events that are shown
  #atMs = 0;
  #speed = 1;
  #timer = null;
  #startedMs = 0; // when playing began, less what was over then
  #calm = matchMedia("(prefers-reduced-motion: reduce)");

  /** Play `events`, each with `at` in milliseconds, in `place`. `onMove({ atMs, count, type })` and `onPlay(isPlaying)` follow it. */
  constructor(place, events, { onMove, onPlay }) {
    this.place = place;
    this.events = events;
    this.onMove = onMove;
    this.onPlay = onPlay;
    this.durationMs = events.at(-1).at;
  }

  get isPlaying() {
    return this.#timer !== null;
  }

  get isAtEnd() {
    return this.#count === this.events.length;
  }

  setSpeed(speed) {
    this.#speed = speed;
    if (this.isPlaying) this.#startClock();
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  play() {
    if (this.isAtEnd) this.seek(0);
    this.#startClock();
    this.#schedule();
    this.onPlay(true);
  }

  pause() {
    if (!this.isPlaying) return;
    clearTimeout(this.#timer);
    this.#timer = null;
    this.onPlay(false);
    this.#tell();
  }

  close() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** Show the run as it was at a time. */
  seek(atMs) {
    this.#show(atMs, this.#countUntil(atMs));
    if (this.isPlaying) this.#startClock();
  }

  /** Show so many events more or less. */
  step(by) {
    this.pause();
    const count = Math.min(Math.max(this.#count + by, 1), this.events.length);
    this.#show(this.events[count - 1].at, count);
  }

  #startClock() {
    this.#startedMs = performance.now() - this.#atMs / this.#speed;
  }

  #schedule() {
    this.#timer = setTimeout(() => this.#tick(), this.#calm.matches ? TICK_MS : 1000 / 60);
  }

  #tick() {
    const atMs = Math.min((performance.now() - this.#startedMs) * this.#speed, this.durationMs);
    let count = this.#countUntil(atMs);
    // People who want no motion see whole texts and calls, not single letters arriving.
    if (this.#calm.matches) while (count < this.events.length && isDelta(this.events[count])) count += 1;
    this.#show(atMs, Math.max(count, this.#count));
    if (this.isAtEnd) this.pause();
    else this.#schedule();
  }

  #countUntil(atMs) {
    let [low, high] = [0, this.events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.events[middle].at <= atMs) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #show(atMs, count) {
    if (!this.view || count < this.#count) {
      this.view = new RunView(ACTIONS);
      this.place.replaceChildren(this.view.element);
      this.#count = 0;
    }
    for (const { event } of this.events.slice(this.#count, count)) this.view.apply(event);
    this.#count = count;
    this.#atMs = atMs;
    this.#tell();
  }

  #tell() {
    const type = this.#count ? this.events[this.#count - 1].event.type : "nothing yet";
    this.onMove({ atMs: this.#atMs, count: this.#count, type });
  }
}
