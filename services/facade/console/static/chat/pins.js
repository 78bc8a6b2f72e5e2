// Knows which questions and answers of one chat are pinned.

import * as api from "../server/api.js";

const KINDS = { user: "query", assistant: "step" };

const createKey = (runId, role) => `${role} ${runId}`;

export class Pins {
  #lines = new Map(); // run and role → line

  /** Load the pins of a chat; one that does not exist yet has none. */
  async load(chatId) {
    const pins = await api.listPins(chatId).catch((error) => {
      if (error.status === 404) return [];
      throw error;
    });
    for (const { runId, role, n } of pins) this.#lines.set(createKey(runId, role), n);
  }

  has(runId, role) {
    return this.#lines.has(createKey(runId, role));
  }

  /** Pin a run's question or its answer, or take the pin back; returns whether there was such a message. */
  async toggle(chatId, runId, role) {
    const key = createKey(runId, role);
    const line = this.#lines.get(key);
    const n = line ?? (await findLine(chatId, runId, role));
    if (n === undefined) return false;
    await api.pinMessage(chatId, n, line !== undefined);
    if (line === undefined) this.#lines.set(key, n);
    else this.#lines.delete(key);
    return true;
  }
}

/** Find the line of a run's question, or of its own last message. */
async function findLine(chatId, runId, role) {
  const places = await api.listCheckpoints(chatId, runId, KINDS[role]);
  return places.find(({ text, contextId }) => text && !contextId)?.n;
}
