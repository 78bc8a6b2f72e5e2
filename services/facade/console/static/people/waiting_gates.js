// Knows which gates wait for the user, on whichever page: for the tab's title, the list of chats, and notifications.

import { Polling } from "../elements/polling.js";
import { formatPageHash } from "../navigation/address.js";
import * as api from "../server/api.js";

const PERIOD_MS = 15_000;
const COUNT_MAX = 200; // of a page; more are counted as 200+

export const KINDS = { approval: "Approval", form: "Form", question: "Question" };

/** Return an id of a gate that is unique in the tenant. */
export const getGateKey = ({ runId, gateId }) => `${runId}/${gateId}`;

export const canNotify = () => globalThis.Notification?.permission === "granted";

export class WaitingGates {
  #known = null; // keys of the gates that were listed the last time
  #polling = new Polling(() => this.#load(), { periodMs: PERIOD_MS, isNeeded: canNotify });

  /** `onChange({ count, chatIds })` gets how many gates the user may answer, as text, and the chats that wait. */
  constructor(onChange) {
    this.onChange = onChange;
  }

  start() {
    return this.#polling.start();
  }

  refresh() {
    return this.#polling.refresh();
  }

  async #load() {
    const [answerable, own] = await Promise.all(
      ["answerable", "own"].map((scope) => api.listGates({ scope, pageSize: COUNT_MAX })),
    );
    const keys = new Set(answerable.data.map(getGateKey));
    if (this.#known) for (const gate of answerable.data) if (!this.#known.has(getGateKey(gate))) notify(gate);
    this.#known = keys;
    const count = answerable.data.length;
    this.onChange({
      count: count ? `${count}${answerable.nextPageToken ? "+" : ""}` : "",
      chatIds: new Set([...answerable.data, ...own.data].map(({ chatId }) => chatId)),
    });
  }
}

/** Tell who does not look at the page that a gate has opened; the notification leads to it. */
function notify(gate) {
  if (!canNotify() || document.hasFocus()) return;
  const { runId, gateId, agentKey, kind, toolName, risk } = gate;
  const notification = new Notification(`${KINDS[kind] ?? kind}: ${toolName}`, {
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
