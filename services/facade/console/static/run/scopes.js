// Where in a run something happened: the run itself, a sub-agent's lane or a plan task's. Parallel ones interleave in
// time, so each has a place of its own.

import { h } from "../elements/dom.js";

export class Lanes {
  #lanes = new Map();

  constructor(body) {
    this.#lanes.set("/", { body });
  }

  /** The element that an event's view belongs into. */
  bodyOf({ subagentId = "", taskId = "" }) {
    const key = `${subagentId}/${taskId}`;
    if (!this.#lanes.has(key)) {
      if (taskId) this.open({ subagentId, taskId }, { subagentId }, "Task", taskId);
      else this.open({ subagentId }, {}, "Sub-agent", subagentId);
    }
    return this.#lanes.get(key).body;
  }

  /** Make the lane of `at` in the lane of `parent`; one that exists gets the new title. */
  open(at, parent, kind, title, goal = "") {
    const key = `${at.subagentId ?? ""}/${at.taskId ?? ""}`;
    const lane = this.#lanes.get(key) ?? this.#make(key, parent);
    lane.summary.replaceChildren(h("span", { class: "kind" }, kind), h("strong", {}, title), " ", lane.outcome);
    lane.goal.textContent = goal;
    lane.element.dataset.state = "running";
    lane.element.open = true;
  }

  /** The lane is done: its line says what came of it. */
  close(at, isOk, outcome = "") {
    const lane = this.#lanes.get(`${at.subagentId ?? ""}/${at.taskId ?? ""}`);
    if (!lane?.element) return;
    lane.element.dataset.state = isOk ? "done" : "failed";
    lane.outcome.textContent = outcome;
    lane.element.open = !isOk;
  }

  #make(key, parent) {
    const lane = {
      summary: h("summary"),
      outcome: h("span", { class: "gist" }),
      goal: h("p", { class: "goal" }),
      body: h("div", { class: "flow" }),
    };
    lane.element = h("details", { class: "lane" }, lane.summary, lane.goal, lane.body);
    this.bodyOf(parent).append(lane.element);
    this.#lanes.set(key, lane);
    return lane;
  }
}
