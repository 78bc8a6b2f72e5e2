// One run on the page: the question, everything that happened in the order it began, and how it ended.
//
// Each event goes into the fold first; the views then draw what the fold says.

import { announce } from "../elements/announcer.js";
import { ApprovalView } from "../people/approval_view.js";
import { h } from "../elements/dom.js";
import { Fold, TERMINAL, blockId, kindOf } from "../events/fold.js";
import { soon } from "../elements/redraw.js";
import { Lanes } from "./scopes.js";
import { LINES } from "./event_lines.js";
import { PlanView } from "./plan_view.js";
import { RunEnd } from "./run_end.js";
import { AnswerView, ReasoningView } from "./text_view.js";
import { Timeline } from "./timeline.js";
import { ToolView } from "./tool_view.js";
import { show } from "../people/viewport.js";

const TASK_STATUS = { start: "in_progress", complete: "completed", cancel: "canceled", fail: "failed" };

export class RunView {
  #fold = new Fold();
  #views = new Map(); // block id → view
  #plans = new Map();
  #approvals = new Map();
  #compaction = null;

  /** `actions` are what a reader may do with the run: submit(body), fork(runId), askAgain(message). */
  constructor(actions) {
    this.actions = actions;
    this.timeline = new Timeline();
    this.question = h("div", { class: "question" });
    this.flow = h("div", { class: "flow" });
    this.end = new RunEnd(this);
    this.element = h("article", { class: "run", "aria-label": "Run" }, this.question, this.flow, this.end.element);
    this.lanes = new Lanes(this.flow);
  }

  get isOver() {
    return this.#fold.end !== null;
  }

  apply(event) {
    this.timeline.add(event);
    this.#fold.apply(event);
    this.#take(event);
    if (event.type in LINES) this.#addLine(event);
    if (TERMINAL.has(event.type)) this.end.show(event);
  }

  /** The question, as it was asked or as it is about to be. */
  showQuestion({ message, references = [] }) {
    this.message = message;
    const files = references.map((reference) => h("li", {}, reference.name || reference.id));
    const list = files.length ? h("ul", { class: "files", "aria-label": "Files" }, ...files) : "";
    this.question.replaceChildren(h("h2", { class: "hidden" }, "You"), h("p", {}, message), list);
  }

  #take(event) {
    switch (event.type) {
      case "request.query":
        return this.showQuestion(event);
      case "run.start":
        return this.#begin(event);
      case "subagent.start":
        return this.#openSubagent(event);
      case "subagent.end":
        return this.lanes.close({ subagentId: event.subagentId }, event.ok, event.summary);
      case "approval.ask":
        return this.#askForApproval(event);
      case "approval.answer":
        return this.#approvals.get(event.approvalId)?.answered(event);
      case "attempt.reset":
        return this.#dropLost();
      default:
        return this.#takeByKind(event);
    }
  }

  #takeByKind(event) {
    switch (kindOf(event)) {
      case "reasoning":
        return this.#showText(event, () => new ReasoningView());
      case "content":
        return this.#showText(event, () => new AnswerView(this.#isHeard(event) ? announce : undefined));
      case "tool":
        return this.#showCall(event);
      case "action":
        return this.#showCall({ ...event, toolParams: event.param ?? event.arguments });
      case "plan":
        return this.#showPlan(event);
      case "task":
        return this.#showTask(event);
      default:
        return undefined; // it has a line, or is newer than this page
    }
  }

  #begin(event) {
    this.runId = event.runId;
    this.agentKey = event.agentKey;
    this.element.dataset.runId = event.runId;
    this.element.setAttribute("aria-label", `Answer of ${event.agentKey}`);
  }

  /** The run's own answer, while it comes; those of tasks and sub-agents are read by who opens them. */
  #isHeard({ subagentId, taskId }) {
    return this.isLive && !subagentId && !taskId;
  }

  #showCall(event) {
    const id = blockId(event);
    const part = event.type.slice(event.type.indexOf(".") + 1);
    if (part === "start" || part === "snapshot") this.#beginCall(id, event);
    const view = this.#views.get(id);
    if (!view) return;
    if (part === "args") view.addArguments(event.delta);
    else if (part === "end" || part === "param") view.setArguments(event.toolParams);
    else if (part === "output") view.addOutput(event.delta);
    else if (part === "result") view.end(event);
    if (view.viewportKey && (part === "end" || part === "snapshot")) this.#askFor(view, event);
  }

  #showPlan(event) {
    if (!this.#plans.has(event.planId)) {
      const plan = new PlanView();
      this.#plans.set(event.planId, plan);
      this.lanes.bodyOf({ subagentId: event.subagentId }).append(plan.element);
    }
    this.#plans.get(event.planId).update(event.plan);
  }

  #showTask(event) {
    const part = event.type.slice("task.".length);
    const at = { subagentId: event.subagentId, taskId: event.taskId };
    const outcome = event.summary ?? event.error?.message ?? "";
    for (const plan of this.#plans.values()) plan.setTask(event.taskId, TASK_STATUS[part], outcome);
    if (part === "start") {
      const title = event.taskName ?? event.description ?? event.taskId;
      this.lanes.open(at, { subagentId: event.subagentId }, "Task", title);
    } else {
      this.lanes.close(at, part === "complete", outcome);
    }
  }

  #openSubagent(event) {
    const isTop = event.parentId === event.runId;
    const parent = { subagentId: isTop ? undefined : event.parentId, taskId: event.taskId };
    this.lanes.open({ subagentId: event.subagentId }, parent, "Sub-agent", event.agentKey, event.goal);
  }

  #askForApproval(event) {
    const tool = this.#views.get(event.toolId);
    const name = tool?.block.name;
    const submit = (payload) => this.actions.submit({ runId: this.runId, approvalId: event.approvalId, payload });
    const view = new ApprovalView(event, name, tool?.block.params, submit);
    this.#approvals.set(event.approvalId, view);
    tool?.unfold();
    (tool?.people ?? this.lanes.bodyOf(event)).append(view.element);
    soon(() => this.isLive && !view.isAnswered && announce(`${name ?? "A tool"} needs your approval.`));
  }

  #dropLost() {
    for (const [id, view] of this.#views) {
      if (this.#fold.blocks.has(id)) continue;
      view.element.remove();
      this.#views.delete(id);
    }
  }

  #showText(event, make) {
    const id = blockId(event);
    const block = this.#fold.blocks.get(id);
    if (!block) return;
    if (!this.#views.has(id)) this.#place(id, make(), event);
    const isOpen = event.type.endsWith(".start") || event.type.endsWith(".delta");
    this.#views.get(id).update(block, isOpen);
  }

  #beginCall(id, event) {
    if (!this.#views.has(id)) this.#place(id, new ToolView(), event);
    const view = this.#views.get(id);
    view.begin(this.#fold.blocks.get(id), event);
    // A snapshot does not say the view; a frontend tool's own name is the usual one.
    view.viewportKey = event.toolType === "frontend" ? (event.viewportKey ?? event.toolName) : event.viewportKey;
  }

  #askFor(view, event) {
    const { name, params } = view.block;
    const isWanted = () => this.isLive && view.result === undefined;
    const submit = (payload) =>
      this.actions.submit({ runId: this.runId, toolId: event.toolId, payload, viewId: view.viewportKey });
    // Later: when a run is attached to, the answer may be the next event.
    soon(() => {
      if (!isWanted()) return;
      announce(`${name} asks you for an answer.`);
      show(view.people, { viewportKey: view.viewportKey, toolName: name, params, isWanted }, submit);
    });
  }

  #place(id, view, event) {
    this.#views.set(id, view);
    this.lanes.bodyOf(event).append(view.element);
  }

  #addLine(event) {
    const line = LINES[event.type](event);
    if (kindOf(event) === "compaction" && this.#compaction) this.#compaction.replaceWith(line);
    else this.lanes.bodyOf(event).append(line);
    this.#compaction = event.type === "compaction.start" ? line : null;
  }
}
