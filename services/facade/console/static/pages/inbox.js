// The page Inbox: the gates that wait for a person, the chosen one with its arguments, and where to answer it.

import { createButton, createElement } from "../elements/dom.js";
import { formatAge, formatCount } from "../elements/format.js";
import { createFrame, createSelect, replaceItems } from "../elements/page.js";
import { showText } from "../elements/shown_text.js";
import { formatPageHash, updatePageAddress } from "../navigation/address.js";
import { GateWatch, getGateKey } from "../people/gate_watch.js";
import { GateView } from "../people/gate_view.js";
import { KINDS } from "../people/waiting_gates.js";
import * as api from "../server/api.js";
import { hasScope } from "./choices.js";
import { createRevocableLists } from "./revocable_lists.js";

const LISTED_MAX = 200;

const MINUTE_MS = 60_000;

const FILTERS = {
  scope: ["Which", { "": "I may answer", own: "of my runs", tenant: "of the tenant" }],
  kind: ["Kind", { "": "any", approval: "approvals", form: "forms", question: "questions" }],
  agent: ["Agent", { "": "any" }],
  risk: ["Risk", { "": "any", critical: "critical", high: "high", medium: "medium", low: "low" }],
  older: ["Waiting", { "": "any time", 5: "over 5 minutes", 60: "over an hour", 1440: "over a day" }],
};

const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };

export function createPage({ waitingGates }) {
  const page = new InboxPage(waitingGates);
  return { element: page.element, show: (parameters) => page.show(parameters), hide: () => page.hide() };
}

class InboxPage {
  #choices = {};
  #view = null;
  #chosen = ""; // key of the gate that is shown, or is being loaded
  #gates = [];
  #watch;
  #ageing; // shows how long gates have waited

  constructor(waitingGates) {
    this.waitingGates = waitingGates;
    for (const [name, [label, options]] of Object.entries(FILTERS)) {
      this.#choices[name] = createSelect(label, options, "", () => this.#changeFilters());
    }
    this.list = createElement("ul", { class: "gates", "aria-label": "Gates" });
    this.count = createElement("p", { role: "status", class: "about" });
    this.details = createElement("div", { class: "details" });
    this.granted = createRevocableLists({
      showProblem: (problem) => showProblem(problem),
      getHeading: () => this.element.querySelector("h2"),
    });
    this.back = createButton("Back to the list", () => this.#leaveGate(), { class: "back" });
    const tools = Object.values(this.#choices).map(({ element }) => element);
    const { element, showProblem } = createFrame(
      { title: "Inbox", about: "Runs that are waiting for a person.", tools: [...tools, createNotifying()], className: "inbox" },
      createElement(
        "div",
        { class: "panes" },
        createElement("div", {}, this.count, this.list, this.granted.element),
        createElement("div", {}, this.back, this.details),
      ),
    );
    this.element = element;
    this.handleKey = (event) => this.#handleKey(event);
    const getFilters = () => this.#watched;
    this.#watch = new GateWatch(getFilters, { onGates: (gates) => this.#setGates(gates), onProblem: showProblem });
    this.#listAgents();
    hasScope("operate").then((isThere) => isThere || this.#choices.scope.select.querySelector("[value=tenant]").remove());
  }

  async show(parameters) {
    for (const [name, { select }] of Object.entries(this.#choices)) select.value = parameters[name] ?? "";
    this.wantedAgent = parameters.agent;
    document.addEventListener("keydown", this.handleKey);
    if (!parameters.gate) this.#closeGate();
    const opened = parameters.gate && this.#openGate({ runId: parameters.run, gateId: parameters.gate });
    this.#ageing = setInterval(() => this.#showList(), MINUTE_MS);
    await Promise.all([this.#watch.start(), this.granted.refresh(), opened]);
  }

  hide() {
    this.#watch.stop();
    clearInterval(this.#ageing);
    document.removeEventListener("keydown", this.handleKey);
  }

  get #filters() {
    return Object.fromEntries(Object.entries(this.#choices).map(([name, { select }]) => [name, select.value]));
  }

  async #listAgents() {
    const { select } = this.#choices.agent;
    const agents = await api.listAgents().catch(() => []); // the other filters work without them
    const options = agents.map(({ key, name }) => createElement("option", { value: key }, name || key));
    select.append(...options);
    if (this.wantedAgent) this.#changeAgent(this.wantedAgent);
  }

  #changeAgent(agentKey) {
    this.#choices.agent.select.value = agentKey;
    this.#watch.restart();
  }

  #changeFilters() {
    updatePageAddress("inbox", this.#filters);
    this.#closeGate();
    return this.#watch.restart();
  }

  get #watched() {
    const { scope, kind, agent, risk } = this.#filters;
    return { scope, kind, agentKey: agent, risk };
  }

  #setGates(gates) {
    this.#gates = gates;
    this.#showList();
    if (this.#view?.gate.state === "open" && !gates.some((gate) => getGateKey(gate) === this.#chosen)) {
      this.#updateChosen();
    }
  }

  #showList() {
    const openedBefore = Date.now() - Number(this.#filters.older) * MINUTE_MS;
    const waiting = this.#gates.filter((gate) => gate.openedAt <= openedBefore || !this.#filters.older);
    const shown = waiting.slice(0, LISTED_MAX);
    replaceItems(
      this.list,
      shown.map((gate) => this.#createItem(gate)),
      this.element.querySelector("h2"),
    );
    const count = waiting.length;
    const cut = count > shown.length ? ` Showing the ${LISTED_MAX} longest waiting.` : "";
    const text = count ? `${formatCount(count, "gate")}.${cut}` : "Nothing is waiting for an answer.";
    if (this.count.textContent !== text) this.count.textContent = text;
  }

  #createItem(gate) {
    const { runId, gateId, kind, toolName, agentKey, requester, risk, openedAt } = gate;
    const key = getGateKey(gate);
    return createElement(
      "li",
      { "data-risk": risk },
      createElement(
        "a",
        {
          href: formatPageHash("inbox", { ...this.#filters, run: runId, gate: gateId }),
          "data-focus": key,
          "aria-current": key === this.#chosen ? "true" : null,
        },
        createElement("span", {}, showText(`${KINDS[kind] ?? kind}: ${toolName}`)),
        risk ? createElement("span", { class: "risk" }, `${risk} risk`) : null,
        createElement("small", {}, `${agentKey} · ${requester} · waiting ${formatAge(openedAt)}`),
      ),
    );
  }

  #findLink(key) {
    return [...this.list.querySelectorAll("a")].find((link) => link.dataset.focus === key);
  }

  #markChosen() {
    this.element.classList.toggle("chosen", Boolean(this.#chosen));
    for (const link of this.list.querySelectorAll("a")) {
      if (link.dataset.focus === this.#chosen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  async #openGate({ runId, gateId }) {
    const key = getGateKey({ runId, gateId });
    if (this.#chosen === key && this.#view) return;
    this.#chosen = key;
    this.#markChosen();
    try {
      const [gate, { user }] = await Promise.all([api.getGate(runId, gateId), api.getIdentity()]);
      if (this.#chosen !== key) return;
      const isOwn = gate.requester === user;
      this.#view = new GateView(gate, { onAnswered: () => this.#handleAnswer(), isOwn });
      this.details.replaceChildren(this.#view.element);
      this.#view.heading.focus();
    } catch (error) {
      if (this.#chosen !== key) return;
      this.details.replaceChildren(createElement("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  /** Show the outcome of a gate that is listed no more: somebody has answered it, or it is over. */
  async #updateChosen() {
    const view = this.#view;
    const gate = await api.getGate(view.gate.runId, view.gate.gateId);
    if (gate.state === "open" || view !== this.#view) return;
    view.gate = gate;
    view.showOutcome(gate);
  }

  #handleAnswer() {
    this.waitingGates.refresh();
    this.granted.refresh();
  }

  #leaveGate() {
    const key = this.#chosen;
    updatePageAddress("inbox", this.#filters);
    this.#closeGate();
    (this.#findLink(key) ?? this.element.querySelector("h2")).focus();
  }

  #closeGate() {
    this.#view = null;
    this.#chosen = "";
    this.details.replaceChildren(createElement("p", { class: "about" }, "Select one to see its request."));
    this.#markChosen();
  }

  #handleKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "Escape" && this.#chosen) return this.#leaveGate();
    const step = STEPS[event.key];
    if (!step || event.target.closest("pre")) return undefined;
    event.preventDefault();
    const links = [...this.list.querySelectorAll("a")];
    const from = links.indexOf(document.activeElement);
    const chosen = links.findIndex((link) => link.dataset.focus === this.#chosen);
    const at = from >= 0 ? from : chosen;
    const next = at < 0 ? 0 : Math.min(Math.max(at + step, 0), links.length - 1);
    return links[next]?.focus();
  }
}

/** Create the button that asks the browser to allow notifications: it is asked by a click alone. */
function createNotifying() {
  const button = createButton("Notify me", ask);
  const texts = { granted: "Notifications are on", denied: "The browser blocks notifications" };
  const note = createElement("span", { class: "about", role: "status" });

  function update() {
    const { permission } = globalThis.Notification ?? { permission: "denied" };
    button.hidden = permission !== "default";
    note.textContent = texts[permission] ?? "";
  }

  async function ask() {
    await Notification.requestPermission();
    update();
  }

  update();
  return createElement("span", { class: "notifying" }, button, note);
}
