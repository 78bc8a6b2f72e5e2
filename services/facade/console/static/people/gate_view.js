// Shows one gate: its request, with arguments, and the form to answer it.

import { createElement } from "../elements/dom.js";
import { formatAge, formatDate } from "../elements/format.js";
import { showText } from "../elements/shown_text.js";
import { formatHash } from "../navigation/address.js";
import * as api from "../server/api.js";
import { getHolder } from "../server/holder.js";
import { ApprovalView, createArguments, DECISION_TEXTS } from "./approval_view.js";
import { createAskForm } from "./ask_view.js";
import { Claim } from "./claim.js";
import { createCredentialForm } from "./credential_view.js";
import { createForm } from "./form_view.js";
import { createStepLine, describeAuthor } from "./gate_step.js";
import { showViewport } from "./viewport.js";
import { KINDS } from "./waiting_gates.js";

const LABEL = "Arguments of the call";

const STATES = {
  expired: "No one answered in time.",
  cancelled: "The run ended before an answer.",
};

const DECIDED = new Set(["approval", "credential"]); // kinds that are answered with a decision

export class GateView {
  #isOpen;

  /** `onAnswered()` runs when an answer was sent; `isOwn` is whether the gate's chat is the user's own. */
  constructor(gate, { onAnswered, isOwn }) {
    this.gate = gate;
    this.onAnswered = onAnswered;
    this.#isOpen = gate.state === "open";
    this.claim = new Claim(gate.runId, gate.gateId);
    this.heading = createElement("h3", { tabindex: -1 }, showText(`${KINDS[gate.kind] ?? gate.kind}: ${gate.toolName}`));
    this.prompt = createElement("div", { class: "people" });
    this.outcome = createElement("p", { role: "status", class: "outcome" });
    this.element = createElement(
      "section",
      { class: "gate", "aria-label": "Selected gate" },
      this.heading,
      createFacts(gate, isOwn),
      ...(gate.kind === "approval" ? [createElement("h4", {}, LABEL), createArguments(LABEL, gate.arguments)] : []),
      ...(gate.steps ?? []).map((step) => createStepLine(step)),
      this.prompt,
      this.outcome,
    );
    if (this.#isOpen) this.#showPrompt();
    else this.showOutcome(gate);
  }

  /** Show how the gate was closed, and with which answer. */
  showOutcome({ kind, state, answer, answeredBy, credential, closedAt }) {
    this.#isOpen = false;
    this.claim.close();
    const { decision, note, arguments: edited } = DECIDED.has(kind) ? (answer ?? {}) : { arguments: answer };
    this.prompt.replaceChildren(edited === undefined ? "" : createArguments("Answer", edited));
    const at = closedAt ? `, ${formatDate(closedAt)}` : "";
    const text = (DECISION_TEXTS[decision] ?? "Answered") + describeAuthor(answeredBy, credential) + at;
    this.outcome.textContent = STATES[state] ?? showText(text + (note ? `: ${note}` : "."));
  }

  #showPrompt() {
    const { gate, prompt, claim } = this;
    const submit = (payload) => this.#submit(payload);
    if (gate.kind === "approval") {
      const askBack = (note) => api.askBack({ runId: gate.runId, gateId: gate.gateId, note });
      prompt.append(new ApprovalView(gate, gate.toolName, gate.arguments, submit, gate.answerers, askBack).element);
      return;
    }
    const form = this.#createForm(submit);
    if (form) {
      prompt.append(claim.element, form);
      claim.watch(form);
    } else {
      const view = { viewportKey: gate.viewportKey ?? gate.toolName, toolName: gate.toolName, params: gate.arguments };
      showViewport(prompt, { ...view, isWaiting: () => this.#isOpen, claim }, submit);
    }
  }

  /** Create the form of a gate that needs no view. */
  #createForm(submit) {
    const { kind, need, ask, arguments: params } = this.gate;
    if (kind === "credential") return createCredentialForm(need ?? {}, submit);
    if (ask) return createAskForm(ask, submit);
    return kind === "question" ? createForm("ask_human", null, params, submit) : null;
  }

  async #submit(payload) {
    const { runId, gateId } = this.gate;
    const answer = await api.answerGate({ runId, gateId, payload, holder: getHolder() });
    this.heading.focus();
    this.onAnswered();
    return answer;
  }
}

function createFacts({ agentKey, requester, openedAt, expiresAt, chatId, runId }, isOwn) {
  const facts = [
    ["Agent", agentKey],
    ["Requested by", requester],
    ["Asked", `${formatDate(openedAt)} (${formatAge(openedAt)} ago)`],
    ["Answer by", formatDate(expiresAt)],
  ];
  if (isOwn) facts.push(["Chat", createElement("a", { href: formatHash({ chatId }) }, "Open")]);
  return createElement(
    "dl",
    {},
    ...facts.flatMap(([term, fact]) => [createElement("dt", {}, term), createElement("dd", {}, fact)]),
  );
}
