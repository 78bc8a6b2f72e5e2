"""A plan's list: ids that are derived, parts behind their task, what is left restated."""

import pytest

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.run.plan import TASKS_MAX, Plan, PlanProblem, Task, groups
from services.orchestrator.run.restore.restored_run import RestoredRun


def described(*texts: str, **fields: str) -> list[Task]:
    return [Task(description=text, **fields) for text in texts]  # pyright: ignore[reportArgumentType] - stubs know no **


def order(plan: Plan) -> list[str]:
    return [task.description for task in plan.tasks]


def test_the_same_calls_make_the_same_ids() -> None:
    first, second = Plan("run"), Plan("run")
    for plan in (first, second):
        plan.add(described("a", "b"), "call_1")
        plan.add(described("c"), "call_2", parent=plan.tasks[0])
    assert first.plan_id == second.plan_id != ""
    assert [task.task_id for task in first.tasks] == [task.task_id for task in second.tasks]
    assert len({task.task_id for task in first.tasks}) == 3
    assert order(first) == ["a", "c", "b"]


def test_neighbours_of_one_group_stand_together() -> None:
    tasks = [*described("a", "b", group="x"), *described("c"), *described("d", group="x")]
    assert [[task.description for task in group] for group in groups(tasks)] == [["a", "b"], ["c"], ["d"]]


def test_what_is_left_is_kept_changed_left_out_and_added_to_in_the_order_given() -> None:
    plan = Plan("run")
    _, parent, _ = plan.add(described("before", "parent", "after"), "call_1")
    done, one, two, three = plan.add(described("done", "one", "two", "three"), "call_2", parent=parent)
    done.status = "completed"
    given = [
        Task(task_id=three.task_id, description="three"),
        *described("new"),
        Task(task_id=one.task_id, description="one changed", composite=True),
    ]
    left = plan.restate([one, two, three], given, "call_3", parent=parent)
    assert [task.description for task in left] == ["three", "new", "one changed"]
    assert order(plan) == ["before", "parent", "done", "two", "three", "new", "one changed", "after"]
    assert (two.status, one.composite, left[1].parent_task_id) == ("skipped", True, parent.task_id)
    assert plan.restate(left, [], "call_4", parent=parent) == []
    assert [task.description for task in plan.open()] == ["before", "parent", "after"]


@pytest.mark.parametrize("ids", [["ffffffff"], ["done"], ["one", "one"]])
def test_only_what_is_left_can_be_kept_and_once(ids: list[str]) -> None:
    plan = Plan("run")
    done, one = plan.add(described("done", "one"), "call_1")
    known = {"done": done.task_id, "one": one.task_id}
    given = [Task(task_id=known.get(name, name), description="x") for name in ids]
    with pytest.raises(PlanProblem, match=one.task_id):
        plan.restate([one], given, "call_2")
    assert order(plan) == ["done", "one"]


def test_a_plan_has_a_greatest_length() -> None:
    plan = Plan("run")
    plan.add(described(*"x" * TASKS_MAX), "call_1")
    with pytest.raises(PlanProblem, match="at most"):
        plan.restate(plan.tasks, described("one more"), "call_2")
    assert len(plan.tasks) == TASKS_MAX


def test_the_plan_that_readers_know_is_the_last_they_were_told_wherever_it_lies_in_the_log() -> None:
    def update(seq: int, task_id: str) -> agent_pb2.AgentDelta:
        plan = agent_pb2.PlanUpdate(plan_id="p", plan=[agent_pb2.Task(task_id=task_id)])
        return agent_pb2.AgentDelta(seq=seq, plan_update=plan)

    events = [update(3, "a"), update(9, "c"), update(7, "b")]
    lines = [memory_pb2.LogLine(event=memory_pb2.EventLine(event=event)) for event in events]
    plan = RestoredRun(lines).scope(None).take_plan()
    assert plan is not None
    assert [task.task_id for task in plan] == ["c"]
