"""Simulates one seed: a world, people who use it, faults in the meantime, and the problems found afterwards."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import structlog

from services.runtime.tokens.count import ESTIMATE_ENCODING, encoding
from trials.simulation.faults import run_faults
from trials.simulation.fixed_order import SETTINGS
from trials.simulation.judging.judge import judge_world
from trials.simulation.judging.services import judge_logs
from trials.simulation.judging.watchers import judge_watchers
from trials.simulation.people.crowd import Crowd
from trials.simulation.plan import Plan, make_plan
from trials.simulation.planted.plant import plant
from trials.simulation.world.loop import SimulatedLoop, Stuck
from trials.simulation.world.processes import Exited, find_process
from trials.simulation.world.system_calls import install
from trials.simulation.world.world import World

if TYPE_CHECKING:
    from trials.simulation.people.users import User

SHM = Path("/dev/shm")

WORK_S = 1800.0
"""Simulated time until all people are done; the faults are over after some minutes."""

JUDGING_S = 1200.0

ENDING_S = 120.0
"""Simulated time in which all services stop, one after another."""

WORLDS_PER_COLLECTION = 50
"""Worlds between two garbage collections, which walk all objects of the process; memory has room for some worlds."""

_worlds = itertools.count(1)
"""Counts the worlds of this process."""

_running: list[World] = []
"""The world that is running."""

JUDGE = "judge"

ROLLS_BACK = "Resetting connection with an active transaction"
"""asyncpg's message to the loop when a caller leaves during a rollback; asyncpg then completes the rollback."""


@dataclass
class Result:
    seed: int
    digest: str = ""
    problems: list[str] = field(default_factory=list[str])
    story: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    bites: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    """Faults that have had an effect, by kind, service and phase of a run."""
    simulated_s: float = 0.0
    turns: int = 0
    traced: list[str] = field(default_factory=list[str])

    def describe(self) -> list[str]:
        first = f"seed {self.seed} {self.digest}: {self.simulated_s:.0f} simulated s, {self.turns} turns"
        return [first, *(f"  PROBLEM {problem}" for problem in self.problems)]


def prepare_process() -> None:
    """Load once all that worlds need, so that each world starts in the same state."""
    missing = {name: value for name, value in SETTINGS.items() if os.environ.get(name) != value}
    if missing:
        raise RuntimeError(f"a world needs these settings from its process's start: {missing}")
    install()
    _configure_logs()
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of the dead are never awaited
    sys.unraisablehook = _ignore  # nor do they end as they should when they are collected
    encoding(ESTIMATE_ENCODING)
    if problems := simulate(make_plan(0)).problems:
        raise RuntimeError(f"seed 0: {problems}")
    # Otherwise, each world's collection would walk all objects ever loaded: 0.3 s.
    gc.collect()
    gc.freeze()
    gc.disable()  # finalizers would run at another moment each time; and most processes end before they need room


def simulate_seed(seed: int, *, make: Callable[[int], Plan] = make_plan, **options: Any) -> Result:
    """Run the world of `seed`, with the plan that `make` makes; report an exception as a problem of this seed."""
    try:
        return simulate(make(seed), **options)
    except Exception:
        return Result(seed, problems=[f"the simulation failed: {traceback.format_exc()}"])


def simulate(
    plan: Plan, *, bug: str = "", traces: bool = False, is_exact: bool = False, shakes: bool = False
) -> Result:
    """Run a world to its end, with a planted bug if one is named.

    With `is_exact`, the digest includes the messages; with `shakes`, objects are at other addresses.
    """
    folder = Path(tempfile.mkdtemp(prefix="headrace-", dir=SHM if SHM.exists() else None))
    loop = SimulatedLoop(Random(f"{plan.seed}/loop"))
    world = World(plan, folder, loop)
    plant(world, bug)
    world.story.is_exact = is_exact or traces
    if traces:
        world.story.traced = []
    if shakes:
        world.story.shaken = []
    result = Result(plan.seed)
    _running[:] = [world]
    loop.set_exception_handler(lambda _, context: _note_failure(world, context))
    try:
        loop.run_until_complete(_run(world, plan, result))
    except (Stuck, TimeoutError) as error:
        result.problems.append(f"{str(error) or 'not done in time'}; last: {world.story.lines[-1:]}")
        result.problems += judge_logs(world)
    finally:
        result.digest, result.story, result.counts = world.story.digest, world.story.lines, world.story.counts
        result.simulated_s, result.turns = loop.time(), loop.turns
        result.bites = world.story.bites
        result.traced = world.story.traced or []
        _bury(world, loop)
        shutil.rmtree(folder, ignore_errors=True)
    return result


async def _run(world: World, plan: Plan, result: Result) -> None:
    for name in world.services:
        world.start(name)
    crowd = Crowd(world, plan)
    await crowd.start()
    async with asyncio.timeout(WORK_S):
        await run_faults(world, plan.faults, crowd.begun)
        await crowd.wait_until_done()

    async def judge(user: User) -> None:
        result.problems += await judge_watchers(user, crowd.watchers)
        result.problems += await judge_world(world, user, crowd)
        result.problems += await judge_watchers(user, crowd.watchers)

    async with asyncio.timeout(JUDGING_S):
        await crowd.judge(JUDGE, judge)
    async with asyncio.timeout(ENDING_S):
        await world.stop_all()
    result.problems += world.left


def _configure_logs() -> None:
    """Record the services' log events in the running world; loggers are made once, as in services."""
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _note_log],
        wrapper_class=structlog.make_filtering_bound_logger(30),
        cache_logger_on_first_use=True,
    )


def _note_log(_logger: Any, _method: str, event: Any) -> Any:
    process = find_process(copy_context())
    world = _running[-1]
    world.logged.append({**event, "process": process.name if process else ""})
    world.story.trace("log", str(event["event"]), ())
    raise structlog.DropEvent


def _ignore(_: object) -> None:
    """Do nothing."""


def _note_failure(world: World, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), Exited) or str(context.get("message")).startswith(ROLLS_BACK):
        return
    world.note_failure("", context)


def _bury(world: World, loop: SimulatedLoop) -> None:
    """Stop the world for good, and suppress messages when its objects are collected."""
    for process in world.all_processes:
        process.is_dead = True
        for task in process.tasks:
            task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - it stays pending
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.close()
    world.forget_all()
    if next(_worlds) % WORLDS_PER_COLLECTION == 0:
        gc.collect()
