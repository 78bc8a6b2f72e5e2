"""Finds the smallest world that still breaks a promise: with fewer and simpler faults, people, questions and
services.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from trials.simulation.plan import Act, Plan

T = TypeVar("T")

TRIES_MAX = 400

AGENTS = ("oneshot", "react", "asks")
"""Replacements for other agents, the simplest first."""


SIMPLER: tuple[dict[str, Any], ...] = (
    {"when_busy": ""},
    {"answer": "approve"},
    {"is_http": False},
    {"is_recorded": False},
    {"pause_s": 1.0},
)
"""Changes that make a question simpler."""


def shrink(plan: Plan, breaks: Callable[[Plan], bool]) -> Plan:
    """Return a smaller plan that `breaks` as `plan` does.

    Stops when nothing more can be left out, or after TRIES_MAX tries.
    """
    shrinking = _Shrinking(plan, breaks)
    before = None
    while shrinking.plan != before:
        before = shrinking.plan
        shrinking.leave_out_all()
        shrinking.simplify_all()
    return shrinking.plan


@dataclass
class _Shrinking:
    plan: Plan
    breaks: Callable[[Plan], bool]
    tries_left: int = TRIES_MAX

    def keeps(self, smaller: Plan) -> bool:
        """Keep the plan and return True if it still breaks."""
        if smaller == self.plan:
            return True
        if self.tries_left <= 0:
            return False
        self.tries_left -= 1
        if self.breaks(smaller):
            self.plan = smaller
            return True
        return False

    def leave_out_all(self) -> None:
        """Leave out all that the failure does not need, the largest parts first."""
        _leave_out(self.plan.faults, lambda faults: self.keeps(replace(self.plan, faults=faults)))
        _leave_out(self.plan.people, lambda people: bool(people) and self.keeps(replace(self.plan, people=people)))
        for at in range(len(self.plan.people)):
            _leave_out(self.plan.people[at], lambda acts, at=at: bool(acts) and self.keeps(self._put_acts(at, acts)))
        _leave_out(self.plan.schedules, lambda schedules: self.keeps(replace(self.plan, schedules=schedules)))
        _leave_out(self.plan.edits, lambda edits: self.keeps(replace(self.plan, edits=edits)))
        if (erasure := self.plan.erasure) is not None:
            _leave_out(erasure.acts, lambda acts: self._keeps_erasure(acts=acts))
            _leave_out(erasure.host_acts, lambda acts: self._keeps_erasure(host_acts=acts))
        for at, acts in enumerate(self.plan.people):
            for number, act in enumerate(acts):
                _leave_out(
                    act.interferences,
                    lambda some, at=at, number=number: self._keeps_act(at, number, interferences=some),
                )

    def simplify_all(self) -> None:
        self.keeps(_drop_processes(self.plan, replicas=1))
        self.keeps(_drop_processes(self.plan, gateways=1))
        self.keeps(_drop_processes(self.plan, memories=1))
        for fields in _list_simpler(self.plan):
            self.keeps(replace(self.plan, **fields))
        for at, acts in enumerate(self.plan.people):
            for number, act in enumerate(acts):
                for agent in AGENTS[: AGENTS.index(act.agent)] if act.agent in AGENTS else AGENTS:
                    if self._keeps_act(at, number, agent=agent):
                        break
                for fields in SIMPLER:
                    self._keeps_act(at, number, **fields)
        for at in range(len(self.plan.faults)):
            fault = replace(self.plan.faults[at], lasts_s=1.0)
            self.keeps(replace(self.plan, faults=(*self.plan.faults[:at], fault, *self.plan.faults[at + 1 :])))

    def _keeps_erasure(self, **fields: Any) -> bool:
        erasure = self.plan.erasure
        return erasure is None or self.keeps(replace(self.plan, erasure=replace(erasure, **fields)))

    def _keeps_act(self, at: int, number: int, **fields: Any) -> bool:
        acts = self.plan.people[at]
        return self.keeps(self._put_acts(at, (*acts[:number], replace(acts[number], **fields), *acts[number + 1 :])))

    def _put_acts(self, at: int, acts: tuple[Act, ...]) -> Plan:
        people = self.plan.people
        return replace(self.plan, people=(*people[:at], acts, *people[at + 1 :]))


def _leave_out(items: tuple[T, ...], keeps: Callable[[tuple[T, ...]], bool]) -> None:
    """Leave out half of the items, then smaller parts, as long as `keeps` accepts the rest."""
    size = len(items)
    while size:
        at = 0
        while at < len(items):
            fewer = items[:at] + items[at + size :]
            if keeps(fewer):
                items = fewer
            else:
                at += size
        size //= 2


def _list_simpler(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield changes that simplify the plan other than by people and faults."""
    yield {"erasure": None}
    yield {"has_facade": False}
    if plan.memories == 1:
        yield {"has_postgres": False}
    yield {"has_watcher": False}
    yield {"has_webhook": False}
    yield {"has_provider": False}
    yield {"gate_rule": "", "erasure": None}
    yield {"skew_s": 0.0}
    for count in range(plan.approvers):
        yield {"approvers": count}
    people = tuple(tuple(replace(act, chat=0) for act in acts) for acts in plan.people)
    schedules = tuple(replace(one, chat=one.chat and 0) for one in plan.schedules)
    edits = tuple(replace(edit, chat=0) for edit in plan.edits)
    yield {"chats": 1, "people": people, "schedules": schedules, "edits": edits}


def _drop_processes(plan: Plan, *, replicas: int = 0, gateways: int = 0, memories: int = 0) -> Plan:
    left = replace(
        plan, replicas=replicas or plan.replicas, gateways=gateways or plan.gateways, memories=memories or plan.memories
    )
    gone = {*_list_replicas(plan)} - {*_list_replicas(left)}
    return replace(left, faults=tuple(fault for fault in plan.faults if not {fault.target, fault.other} & gone))


def _list_replicas(plan: Plan) -> list[str]:
    return [*plan.orchestrators, *plan.llm_gateways, *plan.memory_services]
