// Shows a plan as one card: its tasks in order, each with its state, updated in place.

import { createElement, createHiddenText } from "../elements/dom.js";

const STATUS_LABELS = {
  init: "to do",
  in_progress: "in progress",
  completed: "done",
  failed: "failed",
  canceled: "cancelled",
  skipped: "skipped",
};

export class PlanView {
  #tasks = createElement("ol");
  #items = new Map();

  constructor() {
    this.element = createElement(
      "section",
      { class: "plan", "aria-label": "Plan" },
      createElement("h3", {}, "Plan"),
      this.#tasks,
    );
  }

  update(tasks) {
    this.#items = new Map(tasks.map((task) => [task.taskId, this.#createItem(task, tasks)]));
    this.#tasks.replaceChildren(...this.#items.values());
  }

  /** Show a task's state and outcome before the plan's next update arrives. */
  updateTask(taskId, status, note) {
    const item = this.#items.get(taskId);
    if (!item) return;
    setStatus(item, status);
    if (note) item.querySelector(".note").textContent = note;
  }

  #createItem(task, tasks) {
    const depth = countAncestors(task, tasks);
    const group = task.group ? createElement("span", { class: "group" }, task.group) : null;
    const item = createElement(
      "li",
      { "data-depth": depth },
      createElement("span", { class: "state" }),
      task.description,
      group,
    );
    item.append(
      createElement("p", { class: "note" }, this.#items.get(task.taskId)?.querySelector(".note").textContent ?? ""),
    );
    setStatus(item, task.status);
    return item;
  }
}

function setStatus(item, status) {
  item.dataset.status = status;
  item.querySelector(".state").replaceChildren(createHiddenText(`${STATUS_LABELS[status] ?? status}: `));
}

function countAncestors(task, tasks) {
  let depth = 0;
  for (let at = task; at?.parentTaskId && depth < 5; depth += 1) {
    at = tasks.find((other) => other.taskId === at.parentTaskId);
  }
  return depth;
}
