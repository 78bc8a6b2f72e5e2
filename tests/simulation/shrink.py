"""The smallest world found that still breaks a promise: with fewer faults, people, questions and interferences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.plan import Act, Plan

TRIES_MAX = 300


def shrink(plan: Plan, breaks: Callable[[Plan], bool]) -> Plan:
    """Return a plan that `breaks` as `plan` does, and of which nothing more can be left out within TRIES_MAX tries."""
    tries = 0
    candidates = list_smaller(plan)
    while tries < TRIES_MAX and (candidate := next(candidates, None)) is not None:
        tries += 1
        if breaks(candidate):
            plan, candidates = candidate, list_smaller(candidate)
    return plan


def list_smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with something left out, the largest parts first."""
    size = len(plan.faults)
    while size:
        for at in range(0, len(plan.faults), size):
            yield replace(plan, faults=plan.faults[:at] + plan.faults[at + size :])
        size //= 2
    for at, acts in enumerate(plan.people):
        if len(plan.people) > 1:
            yield replace(plan, people=plan.people[:at] + plan.people[at + 1 :])
        for number, act in enumerate(acts):
            if len(acts) > 1:
                yield _replace_acts(plan, at, acts[:number] + acts[number + 1 :])
            for other in range(len(act.interferences)):
                less = replace(act, interferences=act.interferences[:other] + act.interferences[other + 1 :])
                yield _replace_acts(plan, at, (*acts[:number], less, *acts[number + 1 :]))
    for at in range(len(plan.schedules)):
        yield replace(plan, schedules=plan.schedules[:at] + plan.schedules[at + 1 :])
    if plan.has_approver:
        yield replace(plan, has_approver=False)
    if plan.replicas > 1:
        yield _drop_processes(plan, replicas=1, gateways=plan.gateways)
    if plan.gateways > 1:
        yield _drop_processes(plan, replicas=plan.replicas, gateways=1)


def _drop_processes(plan: Plan, *, replicas: int, gateways: int) -> Plan:
    left = replace(plan, replicas=replicas, gateways=gateways)
    gone = {*plan.orchestrators, *plan.llm_gateways} - {*left.orchestrators, *left.llm_gateways}
    return replace(left, faults=tuple(fault for fault in plan.faults if not {fault.target, fault.other} & gone))


def _replace_acts(plan: Plan, at: int, acts: tuple[Act, ...]) -> Plan:
    return replace(plan, people=(*plan.people[:at], acts, *plan.people[at + 1 :]))
