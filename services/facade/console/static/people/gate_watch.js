// Watches the open gates: a stream that begins with all of them, and is reopened when it ends. It is closed while the tab
// is hidden, because a browser has six connections to a server for all its tabs.

import { readFrames } from "../client/sse.js";
import * as api from "../server/api.js";
import { parseJson } from "../client/json.js";

const RETRY_MS = 1000;
const RETRY_MS_MAX = 60_000;
const GATHER_MS = 50; // changes that come together are shown together

const GIVEN_UP = new Set([400, 401, 403, 404, 501]); // the next answer would be the same

/** Return an id of a gate that is unique in the tenant. */
export const getGateKey = ({ runId, gateId }) => `${runId}/${gateId}`;

const compareText = (a, b) => (a < b ? -1 : Number(a > b));

export class GateWatch {
  #isOn = false;
  #open = null; // aborts the stream that is open, or waits to be opened again
  #gates = new Map(); // by key, as last received
  #telling;

  /**
   * `getFilters()` gives the parameters of each new stream. `onGates(gates)` gets all gates that wait, the oldest first,
   * whenever one has changed; `onProblem(error)` gets the stream's error, or null once it is open.
   */
  constructor(getFilters, { onGates, onProblem = () => {} }) {
    this.getFilters = getFilters;
    this.onGates = onGates;
    this.onProblem = onProblem;
    document.addEventListener("visibilitychange", () => this.#isOn && this.restart());
  }

  /** Start watching; resolves when the first list, or a problem, is shown. */
  start() {
    this.#isOn = true;
    return this.restart();
  }

  stop() {
    this.#isOn = false;
    this.#open?.abort();
    clearTimeout(this.#telling);
  }

  /** Replace the open stream with a new one. */
  restart() {
    this.#open?.abort();
    clearTimeout(this.#telling);
    if (document.hidden) return Promise.resolve();
    this.#open = new AbortController();
    return new Promise((resolve) => this.#follow(this.#open.signal, resolve));
  }

  async #follow(signal, onShown) {
    for (let failures = 0; !signal.aborted; failures += 1) {
      try {
        const response = await api.watchGates(this.getFilters(), signal);
        this.onProblem(null);
        await this.#readStream(response, signal, () => {
          failures = -1;
          onShown();
        });
      } catch (error) {
        if (signal.aborted) break;
        this.onProblem(error);
        if (GIVEN_UP.has(error.status)) break;
      }
      onShown();
      await wait(Math.min(RETRY_MS * 2 ** Math.max(failures, 0), RETRY_MS_MAX), signal);
    }
    onShown();
  }

  async #readStream(response, signal, onList) {
    let listed = null; // while the list arrives
    for await (const data of readFrames(response)) {
      if (signal.aborted) return;
      const { listBegin, listEnd, gate } = parseJson(data);
      if (listBegin) listed = new Map();
      else if (gate) this.#note(listed ?? this.#gates, gate);
      if (listEnd && listed) {
        this.#gates = listed;
        listed = null;
        this.#tell();
        onList();
      } else if (gate && !listed) {
        clearTimeout(this.#telling);
        this.#telling = setTimeout(() => this.#tell(), GATHER_MS);
      }
    }
  }

  #note(gates, gate) {
    if (gate.state === "open") gates.set(getGateKey(gate), gate);
    else gates.delete(getGateKey(gate));
  }

  #tell() {
    const gates = [...this.#gates.values()];
    gates.sort((a, b) => a.openedAt - b.openedAt || compareText(getGateKey(a), getGateKey(b)));
    this.onGates(gates);
  }
}

function wait(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
