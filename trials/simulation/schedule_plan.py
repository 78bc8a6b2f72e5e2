"""Worlds with only schedules and kills: of two replicas and memory, one is killed again and again."""

from dataclasses import replace
from random import Random

from trials.simulation.plan import MEMORY, Act, Fault, Plan, PlannedSchedule

KILLS = 60
"""Kills of one world; a thousand take about seventeen worlds."""

SPAN_S = 600.0
"""Simulated time of the kills: ten times of a schedule, which keeps the results of all ten."""

MEMORY_SHARE = 0.2


def make_schedule_plan(seed: int) -> Plan:
    random = Random(f"{seed}/schedules")
    schedules = tuple(
        PlannedSchedule(
            at_s=random.uniform(0, 5),
            every_minutes=random.choice((1, 1, 2, 0)),
            in_s=random.uniform(5, SPAN_S),
            agent=random.choice(("oneshot", "react")),
            chat=random.choice((None, None, 0)),
            overlap=random.choice(("skip", "queue")),
            catch_up=random.random() < 0.5,
            triggers_s=tuple(random.uniform(1, SPAN_S) for _ in range(random.choice((0, 1, 3)))),
        )
        for _ in range(6)
    )
    plan = Plan(
        seed=seed,
        replicas=2,
        gateways=1,
        has_provider=False,
        chats=1,
        people=((Act(0.0, 0, "oneshot", ""),),),
        faults=(),
        schedules=schedules,
    )
    return replace(plan, faults=_choose_kills(random, plan))


def _choose_kills(random: Random, plan: Plan) -> tuple[Fault, ...]:
    """Choose kills at random times, each after some callbacks of its target, so that they fall between any two
    callbacks.
    """
    return tuple(
        Fault(
            random.uniform(5, SPAN_S),
            "kill",
            MEMORY if random.random() < MEMORY_SHARE else random.choice(plan.orchestrators),
            lasts_s=random.uniform(0.5, 8.0),
            turns=round(10 ** random.uniform(0, 3)),
        )
        for _ in range(KILLS)
    )
