"""A plan's tasks: derived ids, parts directly after their task, and restating the open tasks."""

import pytest

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.run.plan import TASKS_MAX, Plan, PlanProblem, Task, groups
from services.orchestrator.run.restore.restored_run import RestoredRun


def make_tasks(*texts: str, **fields: str) -> list[Task]:
    return [Task(description=text, **fields) for text in texts]  # pyright: ignore[reportArgumentType] - stubs know no **


def list_descriptions(plan: Plan) -> list[str]:
    return [task.description for task in plan.tasks]


def test_the_same_calls_make_the_same_ids() -> None:
    first, second = Plan("run"), Plan("run")
    for plan in (first, second):
        plan.add(make_tasks("a", "b"), "call_1")
        plan.add(make_tasks("c"), "call_2", parent=plan.tasks[0])
    assert first.plan_id == second.plan_id != ""
    assert [task.task_id for task in first.tasks] == [task.task_id for task in second.tasks]
    assert len({task.task_id for task in first.tasks}) == 3
    assert list_descriptions(first) == ["a", "c", "b"]


def test_adjacent_tasks_of_a_group_form_one_group() -> None:
    tasks = [*make_tasks("a", "b", group="x"), *make_tasks("c"), *make_tasks("d", group="x")]
    assert [[task.description for task in group] for group in groups(tasks)] == [["a", "b"], ["c"], ["d"]]


def test_restating_keeps_changes_skips_and_adds_tasks_in_the_order_given() -> None:
    plan = Plan("run")
    _, parent, _ = plan.add(make_tasks("before", "parent", "after"), "call_1")
    done, one, two, three = plan.add(make_tasks("done", "one", "two", "three"), "call_2", parent=parent)
    done.status = "completed"
    given = [
        Task(task_id=three.task_id, description="three"),
        *make_tasks("new"),
        Task(task_id=one.task_id, description="one changed", composite=True),
    ]
    open_tasks = plan.restate([one, two, three], given, "call_3", parent=parent)
    assert [task.description for task in open_tasks] == ["three", "new", "one changed"]
    assert list_descriptions(plan) == ["before", "parent", "done", "two", "three", "new", "one changed", "after"]
    assert (two.status, one.composite, open_tasks[1].parent_task_id) == ("skipped", True, parent.task_id)
    assert plan.restate(open_tasks, [], "call_4", parent=parent) == []
    assert [task.description for task in plan.open()] == ["before", "parent", "after"]


@pytest.mark.parametrize("ids", [["ffffffff"], ["done"], ["one", "one"]])
def test_restating_a_task_that_is_unknown_done_or_repeated_is_refused(ids: list[str]) -> None:
    plan = Plan("run")
    done, one = plan.add(make_tasks("done", "one"), "call_1")
    known = {"done": done.task_id, "one": one.task_id}
    given = [Task(task_id=known.get(name, name), description="x") for name in ids]
    with pytest.raises(PlanProblem, match=one.task_id):
        plan.restate([one], given, "call_2")
    assert list_descriptions(plan) == ["done", "one"]


def test_a_plan_has_a_maximum_length() -> None:
    plan = Plan("run")
    plan.add(make_tasks(*"x" * TASKS_MAX), "call_1")
    with pytest.raises(PlanProblem, match="at most"):
        plan.restate(plan.tasks, make_tasks("one more"), "call_2")
    assert len(plan.tasks) == TASKS_MAX


def test_a_restored_plan_is_the_one_with_the_highest_seq_in_the_log() -> None:
    def update(seq: int, task_id: str) -> agent_pb2.AgentDelta:
        plan = agent_pb2.PlanUpdate(plan_id="p", plan=[agent_pb2.Task(task_id=task_id)])
        return agent_pb2.AgentDelta(seq=seq, plan_update=plan)

    events = [update(3, "a"), update(9, "c"), update(7, "b")]
    lines = [memory_pb2.LogLine(event=memory_pb2.EventLine(event=event)) for event in events]
    plan = RestoredRun(lines).scope(None).take_plan()
    assert plan is not None
    assert [task.task_id for task in plan] == ["c"]
