// Shows one run: the question, everything that happened in the order it began, and how it ended.
//
// Each event is applied to the fold first; the views then draw the fold's state.

import { announceText } from "../elements/announcer.js";
import { ApprovalView } from "../people/approval_view.js";
import { Claim } from "../people/claim.js";
import { createAskForm } from "../people/ask_view.js";
import { createCredentialForm } from "../people/credential_view.js";
import { createButton, createElement } from "../elements/dom.js";
import { createIcon } from "../elements/icon.js";
import { Fold, TERMINAL, getBlockId, getKind } from "../client/fold.js";
import { scheduleForFrame } from "../elements/redraw.js";
import { Scopes } from "./scopes.js";
import { LINE_BUILDERS } from "./event_lines.js";
import { PlanView } from "./plan_view.js";
import { RunEnd } from "./run_end.js";
import { AnswerView, ReasoningView } from "./text_view.js";
import { Trace } from "./trace.js";
import { StatusLine } from "./status_line.js";
import { ToolView } from "./tool_view.js";
import { showViewport } from "../people/viewport.js";
import * as api from "../server/api.js";
import { getHolder } from "../server/holder.js";

const PLANNER = "plan"; // the stage whose text is not part of an answer
const TASK_STATUS = { start: "in_progress", complete: "completed", cancel: "canceled", fail: "failed" };

/** Return whether an event is about a claim, which its form shows while it is in force. */
const isClaim = ({ type, step }) => type === "gate.step" && (step === "claimed" || step === "released");

export class RunView {
  #fold = new Fold();
  #views = new Map(); // block id → view
  #plans = new Map();
  #approvals = new Map();
  #gates = new Map(); // events gate.open of approvals
  #claims = new Map();
  #prompts = new Map(); // the forms of calls that wait for a person, by gate
  #compaction = null;

  /** `actions` are the reader's actions on the run: submit(body), fork(runId), isOwnChat(), isPinned(run, role), togglePin(run, role), goBack(run), askAgain(message). */
  constructor(actions) {
    this.actions = actions;
    this.trace = new Trace((id) => this.#fold.getBlock(id), () => this.#loadMessages());
    this.question = createElement("div", { class: "question" });
    this.flow = createElement("div", { class: "flow" });
    this.status = new StatusLine();
    this.end = new RunEnd(this);
    this.element = createElement(
      "article",
      { class: "run", "aria-label": "Run" },
      this.question,
      this.flow,
      this.status.element,
      this.end.element,
    );
    this.scopes = new Scopes(this.flow);
  }

  /** The answer of the run, as Markdown. */
  get answer() {
    return this.#fold.answer;
  }

  get isOver() {
    return this.#fold.end !== null;
  }

  apply(event) {
    this.trace.addEvent(event);
    this.#fold.apply(event);
    this.#handleEvent(event);
    if (this.isLive) this.status.apply(event);
    if (event.type in LINE_BUILDERS && !isClaim(event)) this.#addLine(event);
    if (!TERMINAL.has(event.type)) return;
    this.end.showOutcome(event);
    for (const claim of this.#claims.values()) claim.close();
  }

  /** Show the question, before or after it is sent; `by` is who has asked it, missing where that is the user. */
  showQuestion({ message, references = [], by }) {
    this.message = message;
    const files = references.map((reference) => createElement("li", {}, reference.name || reference.id));
    const list = files.length ? createElement("ul", { class: "files", "aria-label": "Files" }, ...files) : "";
    const speaker = createElement("h2", { class: "hidden" }, "You");
    this.question.replaceChildren(speaker, createElement("p", {}, message), list);
    if (by) this.#nameSpeaker(speaker, by);
  }

  /** Let the question be asked in other words. */
  offerEditing() {
    const edit = createButton("", () => this.actions.goBack(this), {
      class: "quiet",
      "aria-label": "Edit question",
      title: "Edit the question and ask again",
    });
    edit.append(createIcon("edit"));
    this.question.append(edit);
  }

  /** Show who has asked, where that is another than the user. */
  async #nameSpeaker(speaker, by) {
    const identity = await api.getIdentity().catch(() => null);
    this.isOthers = Boolean(identity) && identity.user !== by;
    if (!this.isOthers) return;
    speaker.textContent = by;
    speaker.className = "speaker";
  }

  /** Load the messages of the run's log, which have the usage of each turn; a recording has none. */
  #loadMessages() {
    return this.actions.isRecorded ? Promise.resolve([]) : api.getRawMessages(this.#fold.chatId, this.runId);
  }

  #handleEvent(event) {
    switch (event.type) {
      case "request.query":
        return this.showQuestion(event);
      case "run.start":
        return this.#beginRun(event);
      case "subagent.start":
        return this.#openSubagent(event);
      case "subagent.end":
        return this.scopes.closeScope({ subagentId: event.subagentId }, event.ok, event.summary);
      case "gate.open":
        return this.#openGate(event);
      case "gate.step":
        if (event.arguments) this.#approvals.get(event.gateId)?.showEdit(event.arguments);
        return this.#claims.get(event.gateId)?.applyStep(event);
      case "gate.close":
        return this.#closeGate(event);
      case "approval.ask":
        return this.#askForApproval(event);
      case "approval.answer":
        return this.#approvals.get(event.approvalId)?.showAnswer(event);
      case "attempt.reset":
        return this.#removeDroppedBlocks();
      default:
        return this.#handleByKind(event);
    }
  }

  #handleByKind(event) {
    switch (getKind(event)) {
      case "reasoning":
        return this.#showText(event, () => new ReasoningView());
      case "content":
        return this.#showText(event, () => this.#createContentView(event));
      case "tool":
        return this.#showCall(event);
      case "action":
        return this.#showCall({ ...event, toolParams: event.param ?? event.arguments });
      case "plan":
        return this.#showPlan(event);
      case "task":
        return this.#showTask(event);
      default:
        return undefined; // the event has a line, or is newer than this page
    }
  }

  #openGate(event) {
    if (event.kind === "approval") this.#gates.set(event.gateId, event);
    else if (event.kind === "credential") this.#ask(event, createCredentialForm, event.need);
    else if (event.ask) this.#ask(event, createAskForm, event.ask);
    else this.#getClaim(event.gateId);
  }

  /** Show the request of an active call to a person: `createPrompt(what, submit)`. */
  #ask(event, createPrompt, what) {
    const tool = this.#views.get(event.toolId);
    const submit = (payload) => this.actions.submit({ runId: this.runId, toolId: event.gateId, payload });
    const claim = this.#getClaim(event.gateId);
    const form = createPrompt(what ?? {}, submit);
    const prompt = createElement("div", { class: "people" }, claim.element, form);
    claim.watch(form);
    this.#prompts.set(event.gateId, prompt);
    tool?.expand();
    (tool?.prompts ?? this.scopes.getBody(event)).append(prompt);
    scheduleForFrame(() => this.isLive && prompt.isConnected && announceText(event.need ? "A tool needs a credential from you." : "A tool has a question for you."));
  }

  #closeGate(event) {
    this.#prompts.get(event.gateId)?.remove();
    this.#claims.get(event.gateId)?.close();
  }

  /** Return the claim of a form's gate, which is open when the form is shown or before. */
  #getClaim(gateId) {
    if (!this.#claims.has(gateId)) this.#claims.set(gateId, new Claim(this.runId, gateId));
    return this.#claims.get(gateId);
  }

  #beginRun(event) {
    this.runId = event.runId;
    this.agentKey = event.agentKey;
    this.agentVersion = event.agentVersion;
    this.element.dataset.runId = event.runId;
    this.element.setAttribute("aria-label", `Answer of ${event.agentKey}`);
  }

  /** Return whether an event belongs to the run's own answer, not to a task or sub-agent. */
  #isAnnounced({ subagentId, taskId }) {
    return this.isLive && !subagentId && !taskId;
  }

  #createContentView(event) {
    if (event.stage === PLANNER) return new ReasoningView("Planning", "Planning");
    return new AnswerView(this.#isAnnounced(event) ? announceText : undefined);
  }

  #showCall(event) {
    const id = getBlockId(event);
    const part = event.type.slice(event.type.indexOf(".") + 1);
    if (part === "start" || part === "snapshot") this.#beginCall(id, event);
    const view = this.#views.get(id);
    if (!view) return;
    if (part === "args") view.addArguments(event.delta);
    else if (part === "end" || part === "param") view.setArguments(event.toolParams);
    else if (part === "output") view.addOutput(event.delta);
    else if (part === "result") view.showResult(event);
    if (view.viewportKey && (part === "end" || part === "snapshot")) this.#showViewport(view, event);
  }

  #showPlan(event) {
    if (!this.#plans.has(event.planId)) {
      const plan = new PlanView();
      this.#plans.set(event.planId, plan);
      this.scopes.getBody({ subagentId: event.subagentId }).append(plan.element);
    }
    this.#plans.get(event.planId).update(event.plan);
  }

  #showTask(event) {
    const part = event.type.slice("task.".length);
    const at = { subagentId: event.subagentId, taskId: event.taskId };
    const outcome = event.summary ?? event.error?.message ?? "";
    for (const plan of this.#plans.values()) plan.updateTask(event.taskId, TASK_STATUS[part], outcome);
    if (part === "start") {
      const title = event.taskName ?? event.description ?? event.taskId;
      this.scopes.openScope(at, { subagentId: event.subagentId }, "Task", title);
    } else {
      this.scopes.closeScope(at, part === "complete", outcome);
    }
  }

  #openSubagent(event) {
    const isTop = event.parentId === event.runId;
    const parent = { subagentId: isTop ? undefined : event.parentId, taskId: event.taskId };
    this.scopes.openScope({ subagentId: event.subagentId }, parent, "Sub-agent", event.agentKey, event.goal);
  }

  #askForApproval(event) {
    const tool = this.#views.get(event.toolId);
    const name = tool?.block.name || undefined;
    const submit = (payload) => this.actions.submit({ runId: this.runId, approvalId: event.approvalId, payload });
    const askBack = (note) => api.askBack({ runId: this.runId, gateId: event.approvalId, note });
    const load = () => api.getGate(this.runId, event.approvalId);
    const { answerers, grounds, argumentsChars } = this.#gates.get(event.approvalId) ?? {};
    const ask = { ...event, isGrantable: Boolean(grounds?.length), argumentsChars };
    const view = new ApprovalView(ask, name, tool?.block.params, submit, answerers, askBack, load);
    this.#approvals.set(event.approvalId, view);
    tool?.expand();
    (tool?.prompts ?? this.scopes.getBody(event)).append(view.element);
    scheduleForFrame(() => this.isLive && !view.isAnswered && announceText(`${name ?? "A tool"} needs your approval.`));
  }

  #removeDroppedBlocks() {
    for (const [id, view] of this.#views) {
      if (this.#fold.getBlock(id)) continue;
      view.element.remove();
      this.#views.delete(id);
    }
  }

  #showText(event, createView) {
    const id = getBlockId(event);
    const block = this.#fold.getBlock(id);
    if (!block) return;
    if (!this.#views.has(id)) this.#addView(id, createView(), event);
    const isOpen = event.type.endsWith(".start") || event.type.endsWith(".delta");
    this.#views.get(id).update(block, isOpen);
  }

  #beginCall(id, event) {
    if (!this.#views.has(id)) this.#addView(id, new ToolView(), event);
    const view = this.#views.get(id);
    view.beginCall(this.#fold.getBlock(id), event);
    view.viewportKey = event.viewportKey;
  }

  #showViewport(view, event) {
    const { name, params } = view.block;
    const isWaiting = () => this.isLive && view.result === undefined;
    const holder = getHolder();
    const submit = (payload) =>
      this.actions.submit({ runId: this.runId, toolId: event.toolId, payload, viewId: view.viewportKey, holder });
    const claim = this.#getClaim(event.toolId);
    // This waits for a frame because the next event of a replayed run may be the answer.
    scheduleForFrame(() => {
      if (!isWaiting()) return;
      announceText(`${name} needs your answer.`);
      showViewport(view.prompts, { viewportKey: view.viewportKey, toolName: name, params, isWaiting, claim }, submit);
    });
  }

  #addView(id, view, event) {
    this.#views.set(id, view);
    this.scopes.getBody(event).append(view.element);
  }

  #addLine(event) {
    const line = LINE_BUILDERS[event.type](event, this.actions);
    if (getKind(event) === "compaction" && this.#compaction) this.#compaction.replaceWith(line);
    else this.scopes.getBody(event).append(line);
    this.#compaction = event.type === "compaction.start" ? line : null;
  }
}
