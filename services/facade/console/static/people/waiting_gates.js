// Keeps track of the gates that wait for the user, for the tab's title, the list of chats, and notifications.

import { Polling } from "../elements/polling.js";
import { showText } from "../elements/shown_text.js";
import { formatPageHash } from "../navigation/address.js";
import * as api from "../server/api.js";
import { GateWatch, getGateKey } from "./gate_watch.js";

const PERIOD_MS = 60_000; // for the user's own gates that others answer; the rest is watched
const HIDDEN_PERIOD_MS = 15_000; // nothing is watched in a hidden tab
const COUNT_MAX = 200; // of a page; more are counted as 200+ in a hidden tab

export const KINDS = { approval: "Approval", form: "Form", question: "Question", credential: "Credential" };

export const canNotify = () => globalThis.Notification?.permission === "granted";

export class WaitingGates {
  #known = null; // keys of the gates that waited the last time
  #answerable = [];
  #isCut = false;
  #own = [];
  #watch = new GateWatch(() => ({}), { onGates: (gates) => this.#setAnswerable(gates) });
  #polling = new Polling(() => this.#load(), { periodMs: PERIOD_MS, isNeeded: canNotify });

  /** `onChange({ count, chatIds })` gets how many gates the user may answer, as text, and the chats that wait. */
  constructor(onChange) {
    this.onChange = onChange;
  }

  start() {
    return Promise.all([this.#watch.start(), this.#polling.start()]);
  }

  refresh() {
    return this.#polling.refresh();
  }

  async #load() {
    const isHidden = document.hidden;
    this.#polling.periodMs = isHidden ? HIDDEN_PERIOD_MS : PERIOD_MS;
    const scopes = isHidden ? ["own", "answerable"] : ["own"];
    const [own, answerable] = await Promise.all(
      scopes.map((scope) => api.listGates({ scope, pageSize: COUNT_MAX })),
    );
    this.#own = own.data;
    if (answerable) this.#setAnswerable(answerable.data, Boolean(answerable.nextPageToken));
    else this.#tell();
  }

  #setAnswerable(gates, isCut = false) {
    const keys = new Set(gates.map(getGateKey));
    if (this.#known) for (const gate of gates) if (!this.#known.has(getGateKey(gate))) notify(gate);
    // Either list may report that one of the user's own gates is closed.
    this.#own = this.#own.filter((gate) => keys.has(getGateKey(gate)) || !this.#known?.has(getGateKey(gate)));
    this.#known = keys;
    this.#answerable = gates;
    this.#isCut = isCut;
    this.#tell();
  }

  #tell() {
    const count = this.#answerable.length;
    this.onChange({
      count: count ? `${count}${this.#isCut ? "+" : ""}` : "",
      chatIds: new Set([...this.#answerable, ...this.#own].map(({ chatId }) => chatId)),
    });
  }
}

/** Notify a user who is not looking at the page that a gate has opened; a click opens the gate. */
function notify(gate) {
  if (!canNotify() || document.hasFocus()) return;
  const { runId, gateId, agentKey, kind, toolName, risk } = gate;
  const notification = new Notification(showText(`${KINDS[kind] ?? kind}: ${toolName}`), {
    body: [agentKey, risk && `${risk} risk`].filter(Boolean).join(" · "),
    icon: "/console/icon.svg",
    tag: getGateKey(gate),
  });
  notification.onclick = () => {
    window.focus();
    location.hash = formatPageHash("inbox", { run: runId, gate: gateId });
    notification.close();
  };
}
