// Keeps when each turn and call of a run began and ended, and shows them as a tree of bars with tokens and cost.

import { createActions, openDialog } from "../elements/dialog.js";
import { createElement } from "../elements/dom.js";
import { formatCount, formatMs, formatTime } from "../elements/format.js";
import { shortenLine, showText } from "../elements/shown_text.js";
import { getBlockId, getKind, TERMINAL } from "../client/fold.js";
import { formatJson, formatJsonText } from "../server/json.js";

const SPANS_MAX = 5000; // enough for hours of tool calls; the chat's history has the rest
const GIST_CHARS = 120;

const countFormat = new Intl.NumberFormat();
const KINDS = { run: "Run", agent: "Sub-agent", task: "Task", turn: "Model", tool: "Tool", wait: "Person", note: "Event" };

export class Trace {
  #root = createSpan("run", "Run", 0);
  #scopes = new Map([["/", this.#root]]); // by sub-agent and task
  #calls = new Map(); // by id: spans of tools, actions, gates
  #count = 0;

  /** `getBlock(id)` returns a block of the run, `loadMessages()` the messages of its log, which have usage. */
  constructor(getBlock, loadMessages) {
    this.getBlock = getBlock;
    this.loadMessages = loadMessages;
  }

  addEvent(event) {
    const { type, timestamp: at } = event;
    const scope = this.#getScope(event);
    const kind = getKind(event);
    this.#root.start ||= at;
    this.#root.end = at;
    if (kind === "reasoning" || kind === "content") this.#extendTurn(scope, getBlockId(event), at);
    else if (kind === "tool" || kind === "action") this.#addCall(scope, type.slice(type.indexOf(".") + 1), event);
    else if (type === "run.start") this.#root.title = event.agentKey;
    else if (type === "subagent.start") this.#openAgent(event);
    else if (type === "subagent.end") this.#closeAgent(event);
    else if (type === "task.start") scope.title = event.taskName ?? event.description ?? event.taskId;
    else if (kind === "task") close(scope, at, type === "task.complete");
    else if (type === "gate.open") this.#calls.set(event.gateId, this.#add(this.#calls.get(event.toolId) ?? scope, "wait", "Waits for a person", at));
    else if (type === "gate.close") close(this.#calls.get(event.gateId), at, true);
    else if (type === "compaction.start") this.#calls.set("compaction", this.#add(scope, "note", "Summary of older messages", at));
    else if (kind === "compaction") close(this.#calls.get("compaction"), at, type !== "compaction.fail");
    else if (type === "attempt.reset") this.#add(scope, "note", `Tried again: ${event.reason}`, at);
    if (!TERMINAL.has(type)) return;
    Object.assign(this.#root, { usage: event.usage, ok: type === "run.complete", isOver: true });
  }

  openDialog() {
    const body = createElement("div", { class: "spans", role: "tree", "aria-label": "Turns and calls", onkeydown: moveFocus });
    const note = createElement("p", { class: "about" });
    const title = `Trace of ${showText(this.#root.title)}`;
    const dialog = openDialog({ id: "trace-title", title, className: "trace" }, (opened) => [note, body, createActions(opened, "Close")]);
    this.#draw(body, note);
    this.#addUsage().then((isNew) => isNew && dialog.open && this.#draw(body, note));
  }

  #getScope({ type, subagentId = "", taskId = "" }) {
    const key = type.startsWith("subagent.") ? "/" : `${subagentId}/${taskId}`;
    if (!this.#scopes.has(key)) {
      const parent = this.#scopes.get(`${subagentId}/`) ?? this.#root;
      this.#scopes.set(key, this.#add(parent, taskId ? "task" : "agent", taskId || subagentId, this.#root.end));
    }
    return this.#scopes.get(key);
  }

  /** Add a span below another; beyond the maximum it is kept nowhere. */
  #add(parent, kind, title, at) {
    const span = { ...createSpan(kind, title, at), parent };
    if ((this.#count += 1) <= SPANS_MAX) parent.children.push(span);
    return span;
  }

  /** Extend the open turn of a scope; a turn begins where the call, or the scope, before it ended. */
  #extendTurn(scope, blockId, at) {
    scope.turn ??= this.#add(scope, "turn", "Turn", scope.endOfLast ?? scope.start ?? at);
    if (!scope.turn.blocks.includes(blockId)) scope.turn.blocks.push(blockId);
    scope.turn.end = at;
  }

  #addCall(scope, part, event) {
    const [id, at] = [getBlockId(event), event.timestamp];
    if (part === "start" || part === "snapshot") {
      this.#extendTurn(scope, id, at);
      const call = this.#add(scope, "tool", event.toolName ?? event.actionName ?? "tool", at);
      call.blocks.push(id);
      this.#calls.set(id, call);
    }
    const call = this.#calls.get(id);
    if (!call) return;
    if (part === "args" || part === "end" || part === "param") {
      if (scope.turn) scope.turn.end = at;
      call.start = at;
    } else if (part === "result") {
      close(call, at, event.ok !== false);
      scope.endOfLast = at;
      scope.turn = null;
    }
  }

  /** Open a sub-agent's span: below the call that started it, if one of its parent has no result yet. */
  #openAgent({ subagentId, parentId, taskId = "", agentKey, goal, timestamp }) {
    const parent = this.#scopes.get(`${parentId}/${taskId}`) ?? this.#scopes.get(`${parentId}/`) ?? this.#root;
    const call = parent.children.findLast(({ kind, isOver }) => kind === "tool" && !isOver);
    const span = this.#add(call ?? parent, "agent", agentKey, timestamp);
    span.goal = goal;
    this.#scopes.set(`${subagentId}/`, span);
  }

  #closeAgent({ subagentId, ok, timestamp }) {
    const span = this.#scopes.get(`${subagentId}/`);
    close(span, timestamp, ok);
    if (span) span.parent.endOfLast = timestamp;
  }

  /** Add usage and exact times from the log's messages; return whether there are any. */
  async #addUsage() {
    const messages = await this.loadMessages().catch(() => []); // the tree is there without them
    const byBlock = new Map(messages.map((message) => [message._contentId ?? message._reasoningId ?? message._toolId ?? message._actionId, message]));
    const answers = new Map(messages.filter(({ _usage }) => _usage).map((message) => [message._msgId, message._usage]));
    for (const span of listSpans(this.#root)) {
      if (span.kind !== "turn") continue;
      const found = span.blocks.map((id) => byBlock.get(id)).filter(Boolean);
      span.usage = found.map(({ _msgId }) => answers.get(_msgId)).find(Boolean) ?? span.usage;
      const ends = found.map(({ _timing }) => _timing?.endedAt).filter(Boolean);
      if (ends.length) span.end = Math.max(...ends);
    }
    return answers.size > 0;
  }

  #draw(body, note) {
    const { start, usage } = this.#root;
    const total = Math.max(1, ...listSpans(this.#root).map(({ end = 0 }) => end - start));
    const number = { turn: 0 };
    body.replaceChildren(this.#createItem(this.#root, { start, total, number, level: 1 }));
    const parts = [`Began ${formatTime(start)}`, ...describeUsage(usage)];
    if (this.#count > SPANS_MAX) parts.push(`the first ${formatCount(SPANS_MAX, "entry")} are shown`);
    note.textContent = parts.join(" · ");
  }

  #createItem(span, scale) {
    const { kind, children, ok, isOver } = span;
    const { start, total, level } = scale;
    const end = span.end ?? start;
    const title = kind === "turn" ? `Turn ${(scale.number.turn += 1)}` : showText(shortenLine(span.title, GIST_CHARS));
    const name = createElement("span", { class: "name" }, createElement("span", { class: "kind" }, KINDS[kind]), " ", title);
    const state = ok === false ? "failed" : isOver || kind === "turn" ? "" : "running";
    const bar = createElement("span", { class: `bar ${kind}` });
    bar.style.setProperty("--from", `${((span.start - start) / total) * 100}%`);
    bar.style.setProperty("--long", `${Math.max(((end - span.start) / total) * 100, 0.4)}%`);
    const row = createElement(
      "div",
      { class: "span", "data-state": ok === false ? "failed" : null },
      name,
      createElement("span", { class: "time" }, formatMs(Math.max(end - span.start, 0))),
      createElement("span", { class: "tokens" }, describeUsage(span.usage).join(" · ") || state),
      createElement("span", { class: "track", "aria-hidden": "true" }, bar),
    );
    row.style.setProperty("--level", level);
    const details = createElement("div", { class: "texts", hidden: true });
    const inner = children.map((child) => this.#createItem(child, { ...scale, level: level + 1 }));
    const toggle = (event) => {
      event.stopPropagation();
      if (!details.hasChildNodes()) details.append(...this.#createTexts(span));
      if (details.hasChildNodes()) details.hidden = !details.hidden;
    };
    row.addEventListener("click", toggle);
    const onkeydown = (event) => event.target === item && (event.key === "Enter" || event.key === " ") && (event.preventDefault(), toggle(event));
    const place = { "aria-level": level, tabindex: level === 1 ? 0 : -1, "aria-expanded": inner.length ? "true" : null };
    const item = createElement("div", { role: "treeitem", ...place, onkeydown }, row, details, inner.length ? createElement("div", { role: "group" }, ...inner) : null);
    return item;
  }

  #createTexts({ kind, goal, blocks }) {
    const texts = goal ? [["Goal", goal]] : [];
    for (const block of blocks.map((id) => this.getBlock(id)).filter(Boolean)) {
      if (kind === "tool") {
        texts.push(["Arguments", block.params === null ? block.text : formatJson(block.params)]);
        if (block.result !== null) texts.push(["Result", formatJsonText(block.result)]);
      } else if (block.kind === "reasoning" || block.kind === "content") {
        texts.push([block.kind === "reasoning" ? "Reasoning" : "Text", block.text]);
      } else texts.push(["Calls", block.name]);
    }
    return texts.flatMap(([title, text]) => [
      createElement("h3", {}, title),
      createElement("pre", { tabindex: 0, role: "group", "aria-label": title }, showText(text)),
    ]);
  }
}

const createSpan = (kind, title, start) => ({ kind, title, start, children: [], blocks: [] });

function close(span, at, ok) {
  if (span) Object.assign(span, { end: at, ok, isOver: true });
}

const listSpans = (span) => [span, ...span.children.flatMap(listSpans)];

function describeUsage(usage) {
  if (!usage) return [];
  const tokens = `${countFormat.format(usage.inputTokens ?? 0)} → ${countFormat.format(usage.outputTokens ?? 0)} tokens`;
  return usage.costUsd ? [tokens, `$${usage.costUsd.toFixed(4)}`] : [tokens];
}

/** Move the focus between the rows that are shown, as in a tree. */
function moveFocus(event) {
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (!(event.key in steps) || event.target.getAttribute("role") !== "treeitem") return;
  event.preventDefault();
  const items = [...event.currentTarget.querySelectorAll("[role=treeitem]")];
  const next = items[items.indexOf(event.target) + steps[event.key]];
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
