// The chat that is shown: its earlier runs from history, the live one followed, and what is asked next.

import * as api from "../server/api.js";
import { TERMINAL } from "../events/fold.js";
import { follow } from "../events/follow.js";
import * as place from "./address.js";
import { RunView } from "../run/run_view.js";

const PROGRESS_MS = 3000;

export class Conversation {
  #leaving = new AbortController();

  /**
   * `hooks`: changed() when a run begins or ends; lost(isLost) when the connection to it breaks and is back;
   * ran(agentKey) tells whose run was shown; forked(); problem(error) for what has no place of its own.
   */
  constructor(element, hooks) {
    this.element = element;
    this.hooks = hooks;
    this.live = null;
  }

  /** Show a chat, and go on with the run that is live in it; without an id: a new chat. */
  async open({ chatId, runId } = {}) {
    this.#leave();
    this.chatId = chatId ?? null;
    this.element.replaceChildren();
    this.hooks.changed();
    if (!chatId) return;
    const { signal } = this.#leaving;
    const runs = await history(chatId, runId);
    if (signal.aborted) return;
    this.#showAll(runs, runId);
  }

  ask(query) {
    const isNew = !this.chatId;
    this.chatId ??= query.chatId ?? api.newId();
    if (isNew) place.tell({ chatId: this.chatId }, { isNew });
    const run = this.#addRun();
    run.showQuestion(query);
    run.element.scrollIntoView({ block: "end" });
    this.#follow({ query: { ...query, chatId: this.chatId, requestId: api.newId() } }, run);
  }

  /** Tell the live run something; when it ends first, that is the next run, which is then followed. */
  async steer(message) {
    const { runId, status } = await api.steer(this.live.runId, message);
    if (status !== "queued" || runId === this.live?.runId) return;
    const { signal } = this.#leaving;
    await this.live?.over;
    if (!signal.aborted) this.#follow({ runId }, this.#addRun());
  }

  cancel() {
    return api.cancel(this.live.runId);
  }

  #leave() {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    this.live = null;
    this.hooks.lost(false);
  }

  #addRun() {
    const run = new RunView({
      submit: (body) => api.submit({ ...body, chatId: this.chatId }),
      fork: (runId) => this.#fork(runId),
      askAgain: (message) => this.ask({ message, agentKey: run.agentKey }),
    });
    this.element.append(run.element);
    return run;
  }

  /** The runs that have ended as history tells them; the others from their beginning, and on from there. */
  #showAll(runs, runId) {
    const isKnown = runs.some((events) => runIdOf(events) === runId);
    for (const events of runs) {
      const id = runIdOf(events);
      if (id && !isOver(events)) this.#follow({ runId: id }, this.#addRun());
      else if (id || isKnown || !runId) this.#replay(events); // else it is the beginning of `runId`
    }
    if (runId && !isKnown) this.#follow({ runId }, this.#addRun());
  }

  #replay(events) {
    const run = this.#addRun();
    for (const event of events) run.apply(event);
    this.hooks.ran(run.agentKey);
  }

  #follow(from, run) {
    run.over = this.#followed(from, run);
  }

  async #followed(from, run) {
    const { signal } = this.#leaving;
    this.live = run;
    run.isLive = true;
    run.element.setAttribute("aria-busy", "true");
    this.hooks.changed();
    const progress = setInterval(() => this.#progress(run), PROGRESS_MS);
    try {
      await follow(from, {
        onEvent: (event) => signal.aborted || this.#take(run, event),
        onLost: this.hooks.lost,
        signal,
      });
    } catch (error) {
      if (!(error instanceof api.ApiError || error instanceof api.Lost)) throw error;
      run.end.fail(error);
    } finally {
      clearInterval(progress);
      run.isLive = false;
      run.element.removeAttribute("aria-busy");
      if (this.live === run) this.#over();
    }
  }

  #take(run, event) {
    run.apply(event);
    if (event.type === "run.start") {
      place.tell({ chatId: this.chatId, runId: run.runId });
      this.hooks.ran(run.agentKey);
      this.hooks.changed();
      this.#progress(run);
    }
  }

  #over() {
    this.live = null;
    this.hooks.lost(false);
    place.tell({ chatId: this.chatId });
    this.hooks.changed();
  }

  /** What the live run has spent; a facade that cannot say is asked again later. */
  async #progress(run) {
    if (!run.runId || run.isOver || document.hidden) return;
    const state = await api.run(run.runId).catch(() => null);
    if (state && run.isLive && !run.isOver) run.end.progress(state);
  }

  async #fork(runId) {
    try {
      const chatId = await api.fork(this.chatId, runId);
      place.tell({ chatId }, { isNew: true });
      await this.open({ chatId });
      this.hooks.forked();
    } catch (error) {
      this.hooks.problem(error);
    }
  }
}

/** The chat's events, one list for each run. A chat whose first run has just begun may not be known yet. */
async function history(chatId, runId) {
  try {
    return split((await api.chat(chatId)).events);
  } catch (error) {
    if (runId && error.status === 404) return [];
    throw error;
  }
}

function split(events) {
  const runs = [];
  for (const event of events) {
    if (event.type === "request.query" || !runs.length) runs.push([]);
    runs.at(-1).push(event);
  }
  return runs;
}

const runIdOf = (events) => events.find((event) => event.type === "run.start")?.runId;
const isOver = (events) => TERMINAL.has(events.at(-1)?.type);
