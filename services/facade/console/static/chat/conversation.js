// Shows one chat: its history, every later run of any user, and the composer for the next question.

import * as api from "../server/api.js";
import { openConfirmation } from "../elements/confirm.js";
import { shortenText } from "../elements/format.js";
import { TERMINAL } from "../client/fold.js";
import { followChat, followRun } from "../events/follow.js";
import * as address from "../navigation/address.js";
import { Pins } from "./pins.js";
import { LINE_BUILDERS } from "../run/event_lines.js";
import { RunView } from "../run/run_view.js";

const PROGRESS_MS = 3000;

export class Conversation {
  #abortController = new AbortController();
  #pins = new Pins();
  #run = null; // the view of the run whose events come
  #asked = new Map(); // views of own questions whose runs have not begun, by request id
  #cursor; // of the last event
  #isFollowing = false;

  /**
   * `hooks`: onChange() when a run begins or ends; onLost(isLost) when the connection to the chat breaks and is back;
   * onAgent(agentKey) when a chat is opened or an own question answered; onGate() when the live run begins or ceases to wait for a person;
   * onFork(); onReturn(question) when the chat went back to before a question; onProblem(error) for errors without a
   * place of their own.
   */
  constructor(element, hooks) {
    this.element = element;
    this.hooks = hooks;
    this.live = null;
    this.access = "own"; // what the user may do in the chat, as the server says it
  }

  /** Show a chat and follow it; without an id, show a new chat. */
  async openChat({ chatId } = {}) {
    this.#leaveChat();
    this.chatId = chatId ?? null;
    this.access = "own";
    this.element.replaceChildren();
    this.hooks.onChange();
    if (!chatId) return;
    const { signal } = this.#abortController;
    const { events, cursor, access } = await api.getChat(chatId);
    if (signal.aborted) return;
    this.access = access || "own";
    // Only the owner of a chat can see and change its pins.
    if (this.isOwn) await this.#pins.load(chatId).catch(this.hooks.onProblem);
    if (signal.aborted) return;
    this.#showHistory(splitByRun(events));
    this.#cursor = cursor;
    this.#follow();
  }

  get isOwn() {
    return this.access === "own";
  }

  /** Ask; the run's events come with those of the chat. */
  async askQuestion(query) {
    const isNew = !this.chatId;
    this.chatId ??= query.chatId ?? api.createId();
    if (isNew) address.updateAddress({ chatId: this.chatId }, { isNew });
    const requestId = api.createId();
    const run = this.#addRunView();
    run.showQuestion(query);
    run.status.show("Sending");
    run.element.scrollIntoView({ block: "end" });
    this.#asked.set(requestId, run);
    this.#goLive(run);
    const { signal } = this.#abortController;
    const starting = new AbortController();
    const onEvent = (event) => {
      if (event.type === "request.query") starting.abort();
      else run.apply(event); // it was refused
    };
    try {
      const body = { ...query, chatId: this.chatId, requestId };
      await followRun(body, { onEvent, onLost: this.hooks.onLost, signal: AbortSignal.any([signal, starting.signal]) });
      if (starting.signal.aborted && !this.#isFollowing) this.#follow();
    } catch (error) {
      this.#showFailure(run, error);
    }
    if (!starting.signal.aborted) this.#endLive(run);
  }

  /** Send the live run a message; if the run ends first, the message starts the next run. */
  steerRun(message) {
    return api.steerRun(this.live.runId, message);
  }

  cancelRun() {
    return api.cancelRun(this.live.runId);
  }

  #leaveChat() {
    this.#abortController.abort();
    this.#abortController = new AbortController();
    this.live = null;
    this.#run = null;
    this.#asked.clear();
    this.#cursor = undefined;
    this.#isFollowing = false;
    this.#pins = new Pins();
    this.hooks.onLost(false);
  }

  #addRunView() {
    const run = new RunView({
      submit: (body) => api.submitPayload({ ...body, chatId: this.chatId }),
      fork: (runId) => this.#forkChat(runId),
      isOwnChat: () => this.isOwn,
      isPinned: (run, role) => this.#pins.has(run.runId, role),
      togglePin: (run, role) => this.#togglePin(run, role),
      goBack: (run) => confirmReturn(run.message, () => this.#goBack(run)),
      askAgain: (message) => this.askQuestion({ message, agentKey: run.agentKey }),
    });
    this.element.append(run.element);
    return run;
  }

  #showHistory(runs) {
    for (const events of runs) {
      if (isBetweenRuns(events[0])) {
        this.#addLine(events[0]);
        continue;
      }
      this.#run = this.#addRunView();
      const isLast = events === runs.at(-1);
      if (isLast && !events.some(({ type }) => TERMINAL.has(type))) this.#goLive(this.#run);
      for (const event of events) this.#run.apply(event);
    }
    if (this.#run) this.hooks.onAgent(this.#run.agentKey);
    if (this.live) this.#showProgress(this.live);
    this.hooks.onChange();
  }

  async #follow() {
    const { signal } = this.#abortController;
    const onEvent = (event, cursor) => {
      this.#cursor = cursor;
      this.#applyEvent(event);
    };
    this.#isFollowing = true;
    try {
      await followChat(this.chatId, this.#cursor, { onEvent, onLost: this.hooks.onLost, signal });
    } catch (error) {
      this.#isFollowing = false; // until the next question
      if (this.live) this.#showFailure(this.live, error);
      else this.hooks.onProblem(error);
    }
  }

  #addLine(event) {
    this.element.append(LINE_BUILDERS[event.type](event));
  }

  #applyEvent(event) {
    if (isBetweenRuns(event)) return this.#addLine(event);
    if (event.type === "request.query" || !this.#run) this.#takeView(event);
    const run = this.#run;
    if (!run.isLive && !run.isOver) this.#goLive(run);
    run.apply(event);
    if (event.type.startsWith("gate.")) this.hooks.onGate();
    if (event.type === "run.start") {
      if (run.isAsked) this.hooks.onAgent(run.agentKey);
      this.hooks.onChange();
      this.#showProgress(run);
    }
    if (run.isLive && run.isOver) this.#endLive(run);
  }

  /** Show the next run; a run that this page asked for has a view already. */
  #takeView({ requestId }) {
    if (this.#run?.isLive) this.#endLive(this.#run);
    const asked = this.#asked.get(requestId);
    this.#asked.delete(requestId);
    this.#run = asked ?? this.#addRunView();
    this.#run.isAsked = Boolean(asked);
    this.element.append(this.#run.element); // others' runs may have begun since it was asked
  }

  #goLive(run) {
    this.live = run;
    run.isLive = true;
    run.element.setAttribute("aria-busy", "true");
    run.progress = setInterval(() => this.#showProgress(run), PROGRESS_MS);
    this.#abortController.signal.addEventListener("abort", () => clearInterval(run.progress), { once: true });
    this.hooks.onChange();
  }

  #endLive(run) {
    clearInterval(run.progress);
    run.status.show("");
    run.isLive = false;
    run.element.removeAttribute("aria-busy");
    if (this.live !== run) return;
    this.live = null;
    this.hooks.onChange();
  }

  #showFailure(run, error) {
    if (!(error instanceof api.HeadraceError || error instanceof api.ConnectionLost)) throw error;
    run.end.showFailure(error);
    this.#endLive(run);
  }

  /** Show the cost of the live run so far; if the facade cannot tell, ask again later. */
  async #showProgress(run) {
    run.status.refresh();
    if (!run.runId || run.isOver || document.hidden) return;
    const state = await api.getRun(run.runId).catch(() => null);
    if (!state || !run.isLive || run.isOver) return;
    run.end.showProgress(state);
    if (state.state === "running" && !state.budgetLeft) this.#endLive(run); // its end was reverted: no event of it will come
  }

  async #forkChat(runId) {
    try {
      const chatId = await api.forkChat(this.chatId, runId);
      address.updateAddress({ chatId }, { isNew: true });
      await this.openChat({ chatId });
      this.hooks.onFork();
    } catch (error) {
      this.hooks.onProblem(error);
    }
  }

  /** Pin or unpin a run's question or answer; every summary includes pinned ones word for word. */
  async #togglePin({ runId }, role) {
    try {
      if (!(await this.#pins.toggle(this.chatId, runId, role))) throw new Error("There is no text to pin.");
    } catch (error) {
      this.hooks.onProblem(error);
    }
  }

  /** Return the chat to the point before a run's question, and offer the question for editing. */
  async #goBack({ runId, message }) {
    const { chatId } = this;
    try {
      const checkpoint = await api.findCheckpoint(chatId, runId);
      if (checkpoint) await api.revertChat(chatId, checkpoint);
      if (this.chatId !== chatId) return;
      await this.openChat({ chatId });
      this.hooks.onReturn(message);
    } catch (error) {
      this.hooks.onProblem(error);
    }
  }
}

function confirmReturn(question, act) {
  openConfirmation({
    title: `Edit “${shortenText(question ?? "", 60)}” and ask again?`,
    text: "This question and everything after it will be hidden, here and from the model. Nothing is deleted: the log keeps everything, and files do not change.",
    label: "Edit",
    attributes: { class: "primary" },
    act,
  });
}

function splitByRun(events) {
  const runs = [];
  for (const event of events) {
    if (event.type === "request.query" || isBetweenRuns(event) || !runs.length) runs.push([]);
    runs.at(-1).push(event);
  }
  return runs;
}

/** Return whether an event is a compaction between runs, which has no sequence number. */
const isBetweenRuns = ({ seq }) => seq === 0;
