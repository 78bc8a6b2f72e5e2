"""Faults of a plan, as they happen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.plan import Fault
    from tests.simulation.world.world import World

SHARE = 0.3
"""Share of the calls that fail while models or tools do."""

LOOKS = 20
"""How often a process that is to be killed is looked at before it is killed anyway."""


async def run_faults(world: World, faults: Sequence[Fault]) -> None:
    """Let the faults happen; all of them are over when this returns."""
    async with asyncio.TaskGroup() as group:
        for fault in faults:
            await asyncio.sleep(fault.at_s - world.loop.time())
            group.create_task(_happen(world, fault))


async def _happen(world: World, fault: Fault) -> None:
    world.story.tell(f"fault    {fault.describe()}", count=f"{fault.kind} {fault.target.partition('-')[0]}")
    outside, wire, disk = world.outside, world.wire, world.storage.faults
    match fault.kind:
        case "kill":
            await _kill(world, fault)
        case "power":
            await _cut_power(world, fault)
        case "cut":
            _cut_connections(world, fault)
        case "part":
            wire.part(fault.target, fault.other)
            await asyncio.sleep(fault.lasts_s)
            wire.mend(fault.target, fault.other)
        case "slow":
            wire.slow_down(1)
            await asyncio.sleep(fault.lasts_s)
            wire.slow_down(-1)
        case "model":
            outside.model_fault += SHARE
            await asyncio.sleep(fault.lasts_s)
            outside.model_fault -= SHARE
        case "tool":
            outside.tool_fault += SHARE
            await asyncio.sleep(fault.lasts_s)
            outside.tool_fault -= SHARE
        case _:
            disk.fails = fault.kind
            await asyncio.sleep(fault.lasts_s)
            disk.fails = ""


async def _kill(world: World, fault: Fault) -> None:
    if not world.is_up(fault.target):
        return
    process = world.processes[fault.target]
    process.turns_left = fault.turns
    for _ in range(LOOKS):
        await asyncio.sleep(fault.lasts_s / LOOKS * 2)
        if process.is_dead:
            break
    process.kill()
    world.restart(fault.target)


async def _cut_power(world: World, fault: Fault) -> None:
    """Cut memory's power at one of its next syncs, or without one."""
    if not world.is_up(fault.target):
        return
    process = world.processes[fault.target]
    world.storage.syncs_left = fault.turns
    for _ in range(LOOKS):
        await asyncio.sleep(fault.lasts_s / LOOKS * 2)
        if process.is_dead:
            break
    world.storage.syncs_left = None
    if world.processes[fault.target] is process:
        # Else another process has synced what it read, and has the logs.
        process.kill()
        world.storage.lose_unsynced()
    world.restart(fault.target)


def _cut_connections(world: World, fault: Fault) -> None:
    for connection in [*world.wire.connections]:
        ends = (connection.client_process.name, connection.server_process.name)
        if ends in ((fault.target, fault.other), (fault.other, fault.target)):
            # Half-open: one end knows at once, the other when its keepalive has found out.
            late_s = fault.lasts_s if fault.turns % 2 else 0.001
            connection.cut(*((0.001, late_s) if fault.turns % 3 else (late_s, 0.001)))
