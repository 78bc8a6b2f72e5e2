"""What goes wrong in a world, when: chosen by the seed before anything happens, so that a story can do with less."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world.world import World

SPAN_S = 120.0
"""Simulated time within which faults begin."""

DOWN_S = (0.1, 20.0)
TURNS = (1, 2000)


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    kind: str
    target: str
    other: str = ""
    lasts_s: float = 1.0
    turns: int = 0
    """Callbacks of the target before it is killed, so that kills fall between any two."""

    def describe(self) -> str:
        other = f" and {self.other}" if self.other else ""
        return f"{self.kind} {self.target}{other} for {self.lasts_s:.1f} s"


def plan_faults(world: World, random: Random) -> list[Fault]:
    """Choose some ten to twenty faults, in the order of their beginnings."""
    names = list(world.services)
    faults: list[Fault] = []
    for _ in range(random.randint(10, 16)):
        at_s, lasts_s = random.uniform(0, SPAN_S), random.uniform(*DOWN_S)
        kind = random.choice(("kill", "kill", "cut", "cut", "part", "slow", "model", "tool"))
        target, other = random.sample(names, 2)
        turns = round(10 ** random.uniform(0, 3.3)) if kind == "kill" else 0
        faults.append(Fault(at_s, kind, target, other if kind in ("cut", "part") else "", lasts_s, turns))
    return sorted(faults, key=lambda fault: fault.at_s)


async def run_faults(world: World, random: Random) -> None:
    """Let the faults happen; all of them are over when this returns."""
    async with asyncio.TaskGroup() as group:
        for fault in plan_faults(world, random):
            await asyncio.sleep(fault.at_s - world.loop.time())
            group.create_task(_happen(world, fault))


async def _happen(world: World, fault: Fault) -> None:
    world.story.tell(f"fault    {fault.describe()}", count=f"{fault.kind} {fault.target.partition('-')[0]}")
    match fault.kind:
        case "kill":
            await _kill(world, fault)
        case "cut":
            _cut(world, fault)
        case "part":
            world.wire.part(fault.target, fault.other)
            await asyncio.sleep(fault.lasts_s)
            world.wire.mend(fault.target, fault.other)
        case "slow":
            before = world.wire.conditions.delay_s
            world.wire.conditions.delay_s = (0.01, 0.5)
            await asyncio.sleep(fault.lasts_s)
            world.wire.conditions.delay_s = before
        case "model":
            world.outside.model_fault += 0.3
            await asyncio.sleep(fault.lasts_s)
            world.outside.model_fault -= 0.3
        case _:
            world.outside.tool_fault += 0.3
            await asyncio.sleep(fault.lasts_s)
            world.outside.tool_fault -= 0.3


async def _kill(world: World, fault: Fault) -> None:
    if not world.is_up(fault.target):
        return
    process = world.processes[fault.target]
    world.kill(fault.target, after_turns=fault.turns)
    for _ in range(20):
        await asyncio.sleep(fault.lasts_s / 10)
        if process.is_dead:
            break
    else:
        process.kill()
    if not world.is_up(fault.target):
        world.story.tell(f"{fault.target} starts again")
        world.start(fault.target)


def _cut(world: World, fault: Fault) -> None:
    for connection in [*world.wire.connections]:
        ends = (connection.client_process.name, connection.server_process.name)
        if ends in ((fault.target, fault.other), (fault.other, fault.target)):
            # Half-open: one end knows at once, the other when its keepalive has found out.
            late_s = fault.lasts_s if fault.turns % 2 else 0.001
            connection.cut(0.001, late_s)
