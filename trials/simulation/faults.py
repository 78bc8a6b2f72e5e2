"""Executes the faults of a plan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trials.simulation.plan import ORCHESTRATOR, POSTGRES
from trials.simulation.postgres.faults import KINDS as DATABASE_KINDS
from trials.simulation.postgres.faults import strike_database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trials.simulation.plan import Fault
    from trials.simulation.world.world import World

SHARE = 0.5
"""Share of the calls that fail during a model or tool fault."""

PHASE_S = 20.0
"""How long a fault waits for its phase before it strikes anyway."""

STOP_S = 60.0
"""How long a process may take to stop; then compose kills an orchestrator."""

LOOKS = 20
"""Number of checks whether a process to be killed is dead, before it is killed anyway."""


async def run_faults(world: World, faults: Sequence[Fault], started: Sequence[Sequence[asyncio.Event]]) -> None:
    """Execute the faults; return when all are over. `begun` signals the start of each person's acts."""
    async with asyncio.TaskGroup() as group:
        for fault in faults:
            group.create_task(_happen(world, fault, started))


async def _happen(world: World, fault: Fault, started: Sequence[Sequence[asyncio.Event]]) -> None:
    if fault.act is not None:
        # A shrunk plan may have lost the act.
        person, number = fault.act
        acts = started[person % len(started)]
        await acts[number % len(acts)].wait()
    if fault.phase:
        await world.story.wait_for_phase(fault.phase, PHASE_S)
    await asyncio.sleep(fault.at_s)
    world.story.tell(f"fault    {fault.describe()}")
    if fault.target == POSTGRES and (world.database is None or fault.kind in DATABASE_KINDS):
        if world.database is not None:
            await strike_database(world.database, fault)
        return
    outside, wire, disk = world.outside, world.wire, world.storage.faults
    match fault.kind:
        case "kill":
            await _kill(world, fault)
        case "stop":
            await _stop(world, fault)
        case "power":
            await _cut_power(world, fault)
        case "cut":
            _cut_connections(world, fault)
        case "part":
            others = list_others(world, fault)
            wire.part(fault.target, others)
            await asyncio.sleep(fault.lasts_s)
            wire.mend(fault.target, others)
        case "slow":
            wire.slow_down(fault.target, 1)
            await asyncio.sleep(fault.lasts_s)
            wire.slow_down(fault.target, -1)
        case "model":
            outside.model_fault += SHARE
            await asyncio.sleep(fault.lasts_s)
            outside.model_fault -= SHARE
        case "tool":
            outside.tool_fault += SHARE
            await asyncio.sleep(fault.lasts_s)
            outside.tool_fault -= SHARE
        case _:
            disk.fails, disk.has_hit = fault.kind, False
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


async def _stop(world: World, fault: Fault) -> None:
    """Stop a process as an update would, and start it again."""
    if not world.is_up(fault.target):
        return
    process = world.processes[fault.target]
    world.story.bite(fault.kind, fault.target)
    process.stop()
    try:
        async with asyncio.timeout(STOP_S):
            await process.ended.wait()
    except TimeoutError:
        world.left.append(f"{process.name} has not stopped within {STOP_S:.0f} s")
        process.kill()
    await asyncio.sleep(fault.lasts_s)
    world.restart(fault.target)


async def _cut_power(world: World, fault: Fault) -> None:
    """Cut memory's power at one of its next syncs, or without a sync."""
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
        # Otherwise, another process has synced what it read and owns the logs.
        process.kill()
        world.story.bite(fault.kind, fault.target)
        world.storage.lose_unsynced()
    world.restart(fault.target)


def list_others(world: World, fault: Fault) -> list[str]:
    return world.orchestrators if fault.other == ORCHESTRATOR else [fault.other]


def _cut_connections(world: World, fault: Fault) -> None:
    others = list_others(world, fault)
    # Half-open: one end notices at once, the other by its keepalive.
    late_s = fault.lasts_s if fault.turns % 2 else 0.001
    notices_s = (0.001, late_s) if fault.turns % 3 else (late_s, 0.001)
    hits = [world.sockets.cut(fault.target, other) for other in others]
    is_hit = any(hits)
    if fault.target == POSTGRES and world.database is not None:
        is_hit = world.database.cut(fault.other, *notices_s)
    for connection in [*world.wire.connections]:
        ends = (connection.client_process.name, connection.server_process.name)
        if fault.target in ends and any(other in ends for other in others):
            connection.cut(*notices_s)
            is_hit = True
    if is_hit:
        world.story.bite(fault.kind, fault.target)
