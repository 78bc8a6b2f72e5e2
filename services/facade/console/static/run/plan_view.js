// A plan: its tasks in order, each with its state; one card, changed in place.

import { h, hidden } from "../elements/dom.js";

const WORDS = {
  init: "to do",
  in_progress: "in progress",
  completed: "done",
  failed: "failed",
  canceled: "cancelled",
  skipped: "skipped",
};

export class PlanView {
  #tasks = h("ol");
  #items = new Map();

  constructor() {
    this.element = h("section", { class: "plan", "aria-label": "Plan" }, h("h3", {}, "Plan"), this.#tasks);
  }

  update(tasks) {
    this.#items = new Map(tasks.map((task) => [task.taskId, this.#item(task, tasks)]));
    this.#tasks.replaceChildren(...this.#items.values());
  }

  /** A task's state and what came of it, ahead of the plan's next update. */
  setTask(taskId, status, note) {
    const item = this.#items.get(taskId);
    if (!item) return;
    setStatus(item, status);
    if (note) item.querySelector(".note").textContent = note;
  }

  #item(task, tasks) {
    const depth = depthOf(task, tasks);
    const group = task.group ? h("span", { class: "group" }, task.group) : null;
    const item = h("li", { "data-depth": depth }, h("span", { class: "state" }), task.description, group);
    item.append(h("p", { class: "note" }, this.#items.get(task.taskId)?.querySelector(".note").textContent ?? ""));
    setStatus(item, task.status);
    return item;
  }
}

function setStatus(item, status) {
  item.dataset.status = status;
  item.querySelector(".state").replaceChildren(hidden(`${WORDS[status] ?? status}: `));
}

function depthOf(task, tasks) {
  let depth = 0;
  for (let at = task; at?.parentTaskId && depth < 5; depth += 1) {
    at = tasks.find((other) => other.taskId === at.parentTaskId);
  }
  return depth;
}
