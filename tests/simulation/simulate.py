"""One seed: a world, people who use it, faults while they do, and what is wrong afterwards."""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import structlog

from services.runtime.randomness import new_uuid
from services.runtime.tokens.count import ESTIMATE_ENCODING
from services.runtime.tokens.encodings import encoding
from tests.simulation import judges
from tests.simulation.faults import run_faults
from tests.simulation.users import User, converse
from tests.simulation.world.loop import SimulatedLoop, Stuck
from tests.simulation.world.processes import find_process
from tests.simulation.world.world import MEMORY, USER, World

SHM = Path("/dev/shm")

WORK_S = 900.0
"""Simulated time until the people are done, the faults being over after some minutes."""

JUDGING_S = 120.0


@dataclass
class Result:
    seed: int
    digest: str = ""
    problems: list[str] = field(default_factory=list[str])
    story: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    simulated_s: float = 0.0
    turns: int = 0
    traced: list[str] = field(default_factory=list[str])

    def describe(self) -> list[str]:
        first = f"seed {self.seed} {self.digest}: {self.simulated_s:.0f} simulated s, {self.turns} turns"
        return [first, *(f"  PROBLEM {problem}" for problem in self.problems)]


def prepare_process() -> None:
    """Load once what every world needs; a world must not find more or less than another."""
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of the dead are never awaited
    sys.unraisablehook = _ignore  # nor do they end as they should when they are collected
    encoding(ESTIMATE_ENCODING)
    simulate(0)
    # Else each world's end looks at all that the process has ever loaded: 0.3 s.
    gc.collect()
    gc.freeze()


def simulate(seed: int, *, traces: bool = False) -> Result:
    """Run the world of a seed to its end."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-", dir=SHM if SHM.exists() else None))
    was_enabled = gc.isenabled()
    gc.disable()  # finalizers would run at another moment each time
    loop = SimulatedLoop(Random(f"{seed}/loop"))
    random = Random(f"{seed}/plan")
    world = World(str(seed), folder, random.choice((1, 1, 2, 3)), loop)
    if traces:
        world.story.traced = []
    result = Result(seed)
    _collect_logs(world)
    loop.set_exception_handler(lambda _, context: _note_failure(world, context))
    try:
        loop.run_until_complete(_run(world, random, result))
    except (Stuck, TimeoutError) as error:
        result.problems.append(f"{error or 'not done in time'}: {_describe_open(world)}")
    finally:
        result.digest, result.story, result.counts = world.story.digest, world.story.lines, world.story.counts
        result.simulated_s, result.turns = loop.time(), loop.turns
        result.traced = world.story.traced or []
        _bury(world, loop)
        shutil.rmtree(folder, ignore_errors=True)
        if was_enabled:
            gc.enable()
    return result


async def _run(world: World, random: Random, result: Result) -> None:
    for name in world.services:
        world.start(name)
    people: list[User] = []
    done: list[asyncio.Event] = []
    address = ",".join(f"local:{name}" for name in world.orchestrators)

    def start_user(name: str, work: Any) -> asyncio.Event:
        finished = asyncio.Event()

        async def main() -> None:
            async with User(name, address, f"local:{MEMORY}", world.story) as user:
                people.append(user)
                await work(user)
            finished.set()

        world.spawn(name, main)
        return finished

    for number in range(random.choice((1, 2, 3))):
        chance = Random(f"{world.seed}/{USER}-{number}")

        async def work(user: User, chance: Random = chance) -> None:
            await converse(user, chance, new_uuid(), chance.randint(1, 4))

        done.append(start_user(f"{USER}-{number}", work))
    faults = asyncio.ensure_future(run_faults(world, random))
    async with asyncio.timeout(WORK_S):
        await faults
        for finished in done:
            await finished.wait()
    logs = judges.read_logs(world)
    result.problems += judges.judge_chats(logs)

    async def judge(user: User) -> None:
        for asked in [asked for person in people for asked in person.asked]:
            result.problems += await judges.judge_reader(user, asked, logs)

    async with asyncio.timeout(JUDGING_S):
        await start_user("judge", judge).wait()
    result.problems += [*judges.judge_logs(world), *judges.judge_effects(world), *world.outside.problems]


def _collect_logs(world: World) -> None:
    def collect(_logger: Any, _method: str, event: Any) -> Any:
        process = find_process(copy_context())
        world.logged.append({**event, "process": process.name if process else ""})
        world.story.trace("log", str(event["event"]), ())
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, collect],
        wrapper_class=structlog.make_filtering_bound_logger(30),
        cache_logger_on_first_use=False,
    )


def _ignore(_: object) -> None:
    """Take no notice."""


def _note_failure(world: World, context: dict[str, Any]) -> None:
    world.logged.append({"event": "task ended by an error", "problem": f"{context}", "process": ""})


def _describe_open(world: World) -> str:
    return world.story.lines[-1] if world.story.lines else "nothing was done"


def _bury(world: World, loop: SimulatedLoop) -> None:
    """Let nothing of the world go on, or say anything when it is collected."""
    for process in world.all_processes:
        process.is_dead = True
        for task in process.tasks:
            task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - it stays pending
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.close()
    world.forget_all()
    gc.collect()
