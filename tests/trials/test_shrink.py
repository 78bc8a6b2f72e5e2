"""The shrinker, with a rule in the place of a world."""

import pytest

from trials.simulation.plan import MEMORY, Plan, make_plan
from trials.simulation.shrink import TRIES_MAX, shrink


def has_kill_of_memory(plan: Plan) -> bool:
    """Break where memory is killed while somebody has asked an agent who calls tools."""
    is_asked = any(act.agent != "oneshot" for acts in plan.people for act in acts)
    return is_asked and any((fault.kind, fault.target) == ("kill", MEMORY) for fault in plan.faults)


@pytest.mark.parametrize("seed", [seed for seed in range(1, 40) if has_kill_of_memory(make_plan(seed))][:8])
def test_what_breaks_nothing_is_left_out_and_what_is_left_is_simple(seed: int) -> None:
    left = shrink(make_plan(seed), has_kill_of_memory)
    assert [(fault.kind, fault.target) for fault in left.faults] == [("kill", MEMORY)]
    [[act]] = left.people
    assert (act.agent, act.interferences, act.when_busy, act.is_http) == ("react", (), "", False)
    assert (left.replicas, left.gateways, left.chats, left.schedules, left.approvers) == (1, 1, 1, (), 0)
    beside = (left.has_provider, left.has_facade, left.has_webhook, left.has_watcher, left.gate_rule, left.skew_s)
    assert beside == (False, False, False, False, "", 0.0)


def test_a_world_that_breaks_by_everything_in_it_stays_and_costs_a_bounded_number_of_tries() -> None:
    plan, tries = make_plan(3), list[Plan]()

    def breaks(smaller: Plan) -> bool:
        tries.append(smaller)
        return smaller == plan

    assert shrink(plan, breaks) == plan
    assert 0 < len(tries) <= TRIES_MAX
