"""Tries one point: runs the work while it fails, and checks the invariants afterwards."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.order import TERMINAL, Event, fold
from tests.support.pairing import assert_paired
from trials.chaos.asking import Asked, Wrong
from trials.chaos.harms import outcome
from trials.faults.calls import INVISIBLE, Point
from trials.faults.workload import Rig, Work

WORK_S = 120.0
"""Time limit of the work, including failing runs; nothing may hang."""

LASTING_S = 1.5
"""Duration of a lasting fault."""

BACK_S = 60.0
"""Time limit until everything works again after the fault; 15 s is required of an otherwise idle machine."""

AGAIN_MAX = 3
"""Number of messages, one of which must be answered after the fault."""

POLL_S = 0.02

BUGS = (
    "rpc failed",
    "run failed",
    "http failed",
    "append failed",
    "commit failed",
    "ended by an error",
    "library said",
)
"""Log events of unexpected errors."""

BROKEN = "BROKEN"
"""Result of a point after which an invariant is violated."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a point."""

    point: Point
    fired: int
    where: str
    result: str
    """One of: not reached, invisible, repeated (the client asked or attached again), tool failed (the model was
    told), failed (a run ended with an error), restarted, or BROKEN.
    """
    problems: tuple[str, ...] = ()


async def try_point(rig: Rig, point: Point) -> Verdict:
    """Run the work while the point fails, and judge the outcome."""
    before, logged = rig.suite.services(), measure_logs(rig)
    rig.suite.simulator.requests.clear()
    problems: list[str] = []
    work = Work()
    try:
        async with asyncio.timeout(WORK_S):
            rig.faults.fail(point)
            async with ending_fault(rig, point):
                if point.phase == "start":
                    await restart(rig, point.service)
                    before = rig.suite.services()
                await rig.work(work)
    except TimeoutError:
        problems.append(f"the work was not done within {WORK_S} s; {work.failures[-3:]}")
    finally:
        rig.faults.stop()
    where, fired = rig.faults.where, rig.faults.fired
    problems += work.wrong
    if not problems:
        try:
            problems += await judge_work(rig, work)
        except (AssertionError, LookupError, ValueError, Wrong, aiohttp.ClientError) as error:
            problems.append(f"what was stored cannot be read: {error!r}")
    problems += find_bugs(rig, logged)
    died = {name for name, pid in rig.suite.services().items() if before.get(name) != pid}
    result = describe_result(work, died)
    if point.fault in INVISIBLE and result != "invisible":
        problems.append(f"{point.fault} was seen: {result} {work.failures} {[outcome(run) for run in work.runs]}")
    if problems:
        result = BROKEN
    elif not fired:
        result = "not reached"
    return Verdict(point, fired, where, result, tuple(problems))


async def restart(rig: Rig, service: str) -> None:
    """Kill a service, and return when its replacement is ready."""
    old = rig.suite.services()[service]
    os.kill(old, signal.SIGKILL)
    await until(lambda: rig.suite.services().get(service, old) != old)
    await until_ready(rig)


@asynccontextmanager
async def ending_fault(rig: Rig, point: Point) -> AsyncGenerator[None]:
    """End a lasting fault LASTING_S after its first failed call, while inside the block."""

    async def end() -> None:
        await until(lambda: rig.faults.fired > 0)
        await asyncio.sleep(LASTING_S)
        rig.faults.stop()

    ending = asyncio.create_task(end()) if point.is_lasting else None
    try:
        yield
    finally:
        if ending is not None:
            ending.cancel()


async def judge_work(rig: Rig, work: Work) -> list[str]:
    """Return the problems of the work after the fault has ended."""
    try:
        async with asyncio.timeout(BACK_S):
            await until_ready(rig)
            for _ in range(AGAIN_MAX):
                if outcome(await rig.ask(work, "again")) == "run.complete":
                    break
            else:
                return [f"no message is answered any more: {[outcome(run) for run in work.runs]} {work.wrong}"]
            problems = [problem for run in work.runs for problem in judge_run(rig, run)]
            problems += await judge_views(rig, work)
    except TimeoutError:
        return [f"not back after {BACK_S} s: {work.failures[-3:]}"]
    problems += judge_effect(rig, work)
    for request in rig.suite.requests():
        try:
            assert_paired(request["messages"])
        except AssertionError as error:
            problems.append(f"an invalid request: {error}")
    return problems


def judge_run(rig: Rig, run: Asked) -> list[str]:
    """Check that an acknowledged run is in the log, and has one end both there and at its reader."""
    lines = read_log(rig, run.chat_id)
    kinds = [line["_type"] for line in lines if line.get("runId") == run.run_id]
    ends = [event["type"] for event in run.events if event["type"] in TERMINAL]
    checks = {
        f"its log begins with {kinds[:1]}": kinds[:1] == ["query"],
        f"its log has {kinds.count('run')} ends": kinds.count("run") == 1,
        f"its reader received {ends}": len(ends) == 1,
        f"it failed as {outcome(run)}": outcome(run) not in ("INTERNAL", "UNKNOWN", "none"),
    }
    return [f"run {run.run_id}: {problem}" for problem, is_well in checks.items() if not is_well]


async def judge_views(rig: Rig, work: Work) -> list[str]:
    """Check that later readers, the history, the list and the log agree with the first readers."""
    problems: list[str] = []
    lines = read_log(rig, work.chat_id)
    if [line["_n"] for line in lines] != list(range(1, len(lines) + 1)):
        problems.append("the log has a gap")
    if await fold_again(rig, work.runs[0], work.told_again) != fold(work.runs[0].events):
        problems.append("who attached while it failed received something else")
    for run in work.runs:
        if await fold_again(rig, run) != fold(run.events):
            problems.append(f"a later reader receives something else of run {run.run_id}")
    status, answer = await get(rig, "/api/chat", chatId=work.chat_id)
    if status != 200:
        return [*problems, f"the chat is answered with {status}"]
    history = fold(answer["data"]["events"])["blocks"]
    blocks = {key: block for run in work.runs for key, block in fold(run.events)["blocks"].items()}
    if history | blocks != history:
        problems.append(f"the history lacks {[block for key, block in blocks.items() if history.get(key) != block]}")
    status, answer = await get(rig, "/api/chats")
    if status != 200 or work.chat_id not in [chat["chatId"] for chat in answer["data"]]:
        problems.append(f"the chat is not listed ({status})")
    status, _ = await get(rig, "/api/chat", chatId=work.deleted)
    if status != 404:
        problems.append(f"the deleted chat is answered with {status}")
    return problems


def judge_effect(rig: Rig, work: Work) -> list[str]:
    """Check that the `once` effect happened at most once, and once if it was reported as done."""
    count = rig.suite.data_dir / "workspaces" / work.chat_id / "outputs" / "count"
    times = len(count.read_text().splitlines()) if count.exists() else 0
    results = [event.get("result", "") for event in work.runs[0].events if event["type"] == "tool.result"]
    problems = [f"the effect was done {times} times"] if times > 1 else []
    if not times and any(result.startswith("done") for result in results):
        problems.append("the effect was reported and not done")
    return problems


def measure_logs(rig: Rig) -> dict[Path, int]:
    return {log: log.stat().st_size for log in (rig.suite.data_dir / "logs").iterdir()}


def find_bugs(rig: Rig, logged: dict[Path, int]) -> list[str]:
    """Return the services' unexpected errors: answers with INTERNAL, and tracebacks."""
    problems: list[str] = []
    for log in (rig.suite.data_dir / "logs").iterdir():
        with log.open("rb") as file:
            file.seek(logged.get(log, 0))
            lines = file.read().splitlines()
        for line in lines:
            try:
                fields = json.loads(line)
            except ValueError:  # a torn line, or not from structlog
                continue
            # aiohttp logs this for a handler that raises.
            if fields["event"] in BUGS or (log.stem, fields["event"]) == ("facade", "library said"):
                problems.append(f"{log.stem}: {fields['event']}: {describe_exception(fields.get('exception'))}")
    return problems


def describe_exception(exception: Any) -> str:
    """Return the outermost exception and where it was raised."""
    if not isinstance(exception, list) or not exception:
        return "no exception"
    places = [f"{frame['filename']}:{frame['lineno']}" for frame in exception[0].get("frames", [])]
    return f"{exception[0]['exc_type']} {exception[0].get('exc_value')} at {' '.join(places[-4:])}"


def describe_result(work: Work, died: set[str]) -> str:
    if died:
        return "restarted"
    if any(outcome(run) != "run.complete" for run in work.runs):
        return "failed"
    results = [event for run in work.runs for event in run.events if event["type"] == "tool.result"]
    if not all(event.get("ok") for event in results):
        return "tool failed"
    return "repeated" if work.failures or any(run.attaches for run in work.runs) else "invisible"


async def fold_again(rig: Rig, run: Asked, events: list[Event] | None = None) -> dict[str, Any]:
    return fold(events if events is not None else await rig.asker.folded_again(run))


async def get(rig: Rig, path: str, **params: str) -> tuple[int, Any]:
    """Return the answer, repeating the request while the service is unavailable."""
    while True:
        try:
            status, answer = await rig.suite.get(path, **params)
        except OSError:
            status, answer = 503, None
        if status < 500:
            return status, answer
        await asyncio.sleep(POLL_S)


def read_log(rig: Rig, chat_id: str) -> list[dict[str, Any]]:
    path: Path = rig.suite.data_dir / "chats" / f"{chat_id}.json"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


async def until_ready(rig: Rig) -> None:
    await until_async(rig.is_ready)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(POLL_S)


async def until_async(is_so: Callable[[], Awaitable[bool]]) -> None:
    while not await is_so():
        await asyncio.sleep(POLL_S)
