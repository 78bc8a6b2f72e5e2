// Shows one chat: replays its earlier runs from history, follows the live one and asks the next question.

import * as api from "../server/api.js";
import { openConfirmation } from "../elements/confirm.js";
import { shortenText } from "../elements/format.js";
import { TERMINAL } from "../client/fold.js";
import { followRun } from "../events/follow.js";
import * as address from "../navigation/address.js";
import { Pins } from "./pins.js";
import { LINE_BUILDERS } from "../run/event_lines.js";
import { RunView } from "../run/run_view.js";

const PROGRESS_MS = 3000;

export class Conversation {
  #abortController = new AbortController();
  #pins = new Pins();

  /**
   * `hooks`: onChange() when a run begins or ends; onLost(isLost) when the connection to it breaks and is back;
   * onAgent(agentKey) when an agent's run is shown; onGate() when the live run begins or ceases to wait for a person;
   * onFork(); onReturn(question) when the chat went back to before a question; onProblem(error) for errors without a
   * place of their own.
   */
  constructor(element, hooks) {
    this.element = element;
    this.hooks = hooks;
    this.live = null;
    this.access = "own"; // what the user may do in the chat, as the server says it
  }

  /** Show a chat and follow its live run; without an id, show a new chat. */
  async openChat({ chatId, runId } = {}) {
    this.#leaveChat();
    this.chatId = chatId ?? null;
    this.access = "own";
    this.element.replaceChildren();
    this.hooks.onChange();
    if (!chatId) return;
    const { signal } = this.#abortController;
    const { runs, access } = await loadHistory(chatId, runId);
    if (signal.aborted) return;
    this.access = access;
    // What is pinned in another's chat is its owner's to know and to change.
    if (this.isOwn) await this.#pins.load(chatId).catch(this.hooks.onProblem);
    if (signal.aborted) return;
    this.hooks.onChange();
    this.#showRuns(runs, runId);
  }

  get isOwn() {
    return this.access === "own";
  }

  askQuestion(query) {
    const isNew = !this.chatId;
    this.chatId ??= query.chatId ?? api.createId();
    if (isNew) address.updateAddress({ chatId: this.chatId }, { isNew });
    const run = this.#addRunView();
    run.showQuestion(query);
    run.element.scrollIntoView({ block: "end" });
    this.#startFollowing({ query: { ...query, chatId: this.chatId, requestId: api.createId() } }, run);
  }

  /** Send the live run a message; if the run ends first, the message starts the next run, which is then followed. */
  async steerRun(message) {
    const { runId, status } = await api.steerRun(this.live.runId, message);
    if (status !== "queued" || runId === this.live?.runId) return;
    const { signal } = this.#abortController;
    await this.live?.completion;
    if (!signal.aborted) this.#startFollowing({ runId }, this.#addRunView());
  }

  cancelRun() {
    return api.cancelRun(this.live.runId);
  }

  #leaveChat() {
    this.#abortController.abort();
    this.#abortController = new AbortController();
    this.live = null;
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

  /** Replay ended runs from history and follow the others from their beginning. */
  #showRuns(runs, runId) {
    const isKnown = runs.some((events) => findRunId(events) === runId);
    for (const events of runs) {
      const id = findRunId(events);
      if (isBetweenRuns(events[0])) this.element.append(LINE_BUILDERS[events[0].type](events[0]));
      else if (id && !hasEnded(events)) this.#startFollowing({ runId: id }, this.#addRunView());
      else if (id || isKnown || !runId) this.#replayRun(events); // otherwise these events are the beginning of `runId`
    }
    if (runId && !isKnown) this.#startFollowing({ runId }, this.#addRunView());
  }

  #replayRun(events) {
    const run = this.#addRunView();
    for (const event of events) run.apply(event);
    this.hooks.onAgent(run.agentKey);
  }

  #startFollowing(source, run) {
    run.completion = this.#followToEnd(source, run);
  }

  async #followToEnd(source, run) {
    const { signal } = this.#abortController;
    this.live = run;
    run.isLive = true;
    run.element.setAttribute("aria-busy", "true");
    this.hooks.onChange();
    const timer = setInterval(() => this.#showProgress(run), PROGRESS_MS);
    try {
      await followRun(source, {
        onEvent: (event) => signal.aborted || this.#applyEvent(run, event),
        onLost: this.hooks.onLost,
        signal,
      });
    } catch (error) {
      if (!(error instanceof api.HeadraceError || error instanceof api.ConnectionLost)) throw error;
      run.end.showFailure(error);
    } finally {
      clearInterval(timer);
      run.isLive = false;
      run.element.removeAttribute("aria-busy");
      if (this.live === run) this.#endFollowing();
    }
  }

  #applyEvent(run, event) {
    run.apply(event);
    if (event.type.startsWith("gate.")) this.hooks.onGate();
    if (event.type === "run.start") {
      address.updateAddress({ chatId: this.chatId, runId: run.runId });
      this.hooks.onAgent(run.agentKey);
      this.hooks.onChange();
      this.#showProgress(run);
    }
  }

  #endFollowing() {
    this.live = null;
    this.hooks.onLost(false);
    address.updateAddress({ chatId: this.chatId });
    this.hooks.onChange();
  }

  /** Show what the live run has spent; a facade that cannot say is asked again later. */
  async #showProgress(run) {
    if (!run.runId || run.isOver || document.hidden) return;
    const state = await api.getRun(run.runId).catch(() => null);
    if (state && run.isLive && !run.isOver) run.end.showProgress(state);
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

  /** Keep a run's question or answer word for word beside every summary of the chat, or no longer. */
  async #togglePin({ runId }, role) {
    try {
      if (!(await this.#pins.toggle(this.chatId, runId, role))) throw new Error("There is no text to pin.");
    } catch (error) {
      this.hooks.onProblem(error);
    }
  }

  /** Make the chat as it was before a run's question, and give the question to whoever wants to ask it in other words. */
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
    title: `Go back to before “${shortenText(question ?? "", 60)}”?`,
    text: "This question and all that came after it are shown no more, neither here nor to the model. Nothing is deleted: the log keeps it, and files stay as they are.",
    label: "Go back",
    attributes: { class: "primary" },
    act,
  });
}

/** Load the chat's events, one list for each run, and what the user may do in it. A chat whose first run has just begun may not be known yet. */
async function loadHistory(chatId, runId) {
  try {
    const { events, access } = await api.getChat(chatId);
    return { runs: splitByRun(events), access: access || "own" };
  } catch (error) {
    if (runId && error.status === 404) return { runs: [], access: "own" };
    throw error;
  }
}

function splitByRun(events) {
  const runs = [];
  for (const event of events) {
    if (event.type === "request.query" || isBetweenRuns(event) || !runs.length) runs.push([]);
    runs.at(-1).push(event);
  }
  return runs;
}

/** Tell whether an event, a compaction, is of no run: it has no number there. */
const isBetweenRuns = ({ seq }) => seq === 0;
const findRunId = (events) => events.find((event) => event.type === "run.start")?.runId;
const hasEnded = (events) => TERMINAL.has(events.at(-1)?.type);
