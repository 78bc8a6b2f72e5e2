"""A plan's tasks; ids come from calls, so that a replay makes the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.ids import derived_id

TASKS_MAX = 200
"""A model that adds more has lost its way."""

OPEN = frozenset({"init", "in_progress"})
STATUSES = ("init", "in_progress", "completed", "failed", "canceled", "skipped")

Task = agent_pb2.Task


class PlanProblem(Exception):
    """Tells the model why the plan cannot follow its call."""


class Plan:
    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.plan_id = ""
        """8 hex digits; empty until the plan has tasks."""
        self.tasks: list[Task] = []

    def add(self, given: Sequence[Task], made_by: str, *, parent: Task | None = None) -> list[Task]:
        """Append tasks, or put them behind `parent`.

        Raises:
            PlanProblem: There would be too many.
        """
        if len(self.tasks) + len(given) > TASKS_MAX:
            raise PlanProblem(f"a plan holds {TASKS_MAX} tasks at most; this one has {len(self.tasks)}")
        self.plan_id = self.plan_id or derived_id(self._run_id, made_by)
        added = [self._make_task(task, f"{made_by}/{index}", parent) for index, task in enumerate(given)]
        at = len(self.tasks) if parent is None else self._index_behind(parent)
        self.tasks[at:at] = added
        return added

    def restate(
        self, remaining: Sequence[Task], given: Sequence[Task], made_by: str, *, parent: Task | None = None
    ) -> list[Task]:
        """Return the new list: tasks with an id are kept, those without are new, those left out are skipped.

        Raises:
            PlanProblem: An id is unknown or repeated, or there would be too many.
        """
        known = {task.task_id: task for task in remaining}
        kept = [task.task_id for task in given if task.task_id]
        for task_id in kept:
            if task_id not in known or kept.count(task_id) > 1:
                raise PlanProblem(f"taskId {task_id!r} must be one of those that are left, once: {', '.join(known)}")
        new = [task for task in given if not task.task_id]
        added = iter(self.add(new, made_by, parent=parent))
        restated = [self._update_task(known[task.task_id], task) if task.task_id else next(added) for task in given]
        for task in remaining:
            if task.task_id not in kept:
                task.status = "skipped"
        self._place_restated(remaining, restated)
        return restated

    def find(self, task_id: str) -> Task:
        """Raises PlanProblem when the plan has no such task."""
        for task in self.tasks:
            if task.task_id == task_id:
                return task
        known = ", ".join(task.task_id for task in self.tasks) or "none"
        raise PlanProblem(f"there is no task {task_id!r} in the plan; tasks: {known}")

    def open(self) -> list[Task]:
        return [task for task in self.tasks if task.status in OPEN]

    def as_logged(self) -> memory_pb2.Plan:
        return memory_pb2.Plan(plan_id=self.plan_id, tasks=self.tasks)

    def as_text(self) -> str:
        return "\n".join(f"- {task.task_id} [{task.status}] {task.description}" for task in self.tasks)

    def _update_task(self, task: Task, given: Task) -> Task:
        task.description = given.description
        if given.HasField("composite"):
            task.composite = given.composite
        return task

    def _place_restated(self, former: Sequence[Task], restated: list[Task]) -> None:
        moved = [task for task in (*former, *restated) if task in self.tasks]
        if not moved:
            return
        at = min(self.tasks.index(task) for task in moved)
        skipped = [task for task in former if task.status == "skipped"]
        self.tasks = [task for task in self.tasks if task not in moved]
        self.tasks[at:at] = [*skipped, *restated]

    def _make_task(self, given: Task, name: str, parent: Task | None) -> Task:
        task = Task(task_id=derived_id(self._run_id, name), description=given.description)
        task.status = given.status or "init"
        if given.HasField("group"):
            task.group = given.group
        if given.HasField("composite"):
            task.composite = given.composite
        if parent is not None:
            task.parent_task_id = parent.task_id
        return task

    def _index_behind(self, parent: Task) -> int:
        family = {parent.task_id}
        at = self.tasks.index(parent) + 1
        while at < len(self.tasks) and self.tasks[at].parent_task_id in family:
            family.add(self.tasks[at].task_id)
            at += 1
        return at


def groups(tasks: Iterable[Task]) -> list[list[Task]]:
    found: list[list[Task]] = []
    for task in tasks:
        if found and task.group and found[-1][-1].group == task.group:
            found[-1].append(task)
        else:
            found.append([task])
    return found
