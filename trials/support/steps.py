"""Runs the steps of a check, some in parallel, and reports the result and duration of each at the end."""

import asyncio
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trials.support.commands import NOT_TRIED, ROOT

CORES = 2
"""Cores that steps share; the tests use all available cores."""

LOOK_S = 0.5
KILL_S = 20.0
NOTES = ("UNSTABLE", "NOTICE", "NOT TRIED")
"""Beginnings of lines that are repeated at the end, since readers would overlook them among the others."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    command: Sequence[str]
    after: Sequence[str] = ()
    """Steps that end before this one begins, whatever their results."""

    cores: int = 1
    """Number of cores that the step keeps busy; 0: it waits for the network."""

    minutes_max: float = 120.0

    @property
    def is_shown(self) -> bool:
        """Return whether the output is shown at once, because the step runs alone; other steps' output is shown
        if they fail.
        """
        return self.cores >= CORES


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    outcome: str
    """passed, failed or not tried."""

    minutes: float
    notes: list[str] = field(default_factory=list[str])


def run_steps(steps: Sequence[Step], folder: Path) -> list[Result]:
    """Run all steps, in this order unless `after` says otherwise; keep the output of each in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_run_steps(steps, folder))


async def _run_steps(steps: Sequence[Step], folder: Path) -> list[Result]:
    ended = {step.name: asyncio.Event() for step in steps}
    cores = asyncio.Semaphore(CORES)
    queue = asyncio.Lock()

    async def run_step(step: Step) -> Result:
        log = folder / f"{step.name}.log"
        for name in step.after:
            await ended[name].wait()
        async with queue:
            for _ in range(step.cores):
                await cores.acquire()
        try:
            started_at = time.monotonic()
            outcome = await run_command(step, log)
            return conclude(step, outcome, time.monotonic() - started_at, log)
        finally:
            ended[step.name].set()
            for _ in range(step.cores):
                cores.release()

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run_step(step)) for step in steps]
    return [task.result() for task in running]


async def run_command(step: Step, log: Path) -> str:
    """Return the outcome, in the form of `Result.outcome`."""
    if step.is_shown:
        print(f"\n== {step.name}", flush=True)
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *step.command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    in_time = False
    try:
        async with asyncio.timeout(step.minutes_max * 60):
            await (show_until_end(process, log) if step.is_shown else process.wait())
            in_time = True
    except TimeoutError:
        print(f"{step.name} is not done in {step.minutes_max:g} minutes")
    finally:
        await end_group(process)
    code = process.returncode if in_time else None
    return "passed" if code == 0 else "not tried" if code == NOT_TRIED else "failed"


def conclude(step: Step, outcome: str, seconds: float, log: Path) -> Result:
    text = log.read_text(errors="replace")
    if outcome == "failed" and not step.is_shown:
        print(f"\n== {step.name}\n{text}")
    print(f"== {step.name}: {outcome}, {seconds / 60:.1f} min", flush=True)
    notes = [f"{step.name}: {line}" for line in dict.fromkeys(text.splitlines()) if line.startswith(NOTES)]
    return Result(step.name, outcome, round(seconds / 60, 2), notes)


async def show_until_end(process: asyncio.subprocess.Process, log: Path) -> None:
    """Print the text written to the file until the process ends; processes that it has left may write more."""
    with log.open("rb") as file:
        while process.returncode is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await process.wait()
            sys.stdout.buffer.write(file.read())
            sys.stdout.flush()


async def end_group(process: asyncio.subprocess.Process) -> None:
    """End the step's remaining processes: those left over, or all of them after a timeout."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_S):
            await process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def report(results: Sequence[Result], minutes: float, file: Path) -> int:
    """Print the table, write it to the file as JSON, and return the exit code."""
    width = max(len(result.name) for result in results)
    print(f"\n{'step':{width}}  {'result':9}  minutes")
    for result in results:
        print(f"{result.name:{width}}  {result.outcome:9}  {result.minutes:7.1f}")
    print(f"{'all':{width}}  {'':9}  {minutes:7.1f}")
    for note in (note for result in results for note in result.notes):
        print(note)
    rest = [f"{result.name} ({result.outcome})" for result in results if result.outcome != "passed"]
    print(f"not passed: {', '.join(rest)}" if rest else "passed", flush=True)
    summary = {**name_checkout(), "minutes": round(minutes, 2), "steps": [asdict(result) for result in results]}
    file.write_text(json.dumps(summary, indent=1) + "\n")
    return int(bool(rest))


def name_checkout() -> dict[str, str]:
    """Return the commit, with `+` if files differ from it, and the date."""
    commit = ask_git("rev-parse", "--short=10", "HEAD") + ("+" if ask_git("status", "--porcelain") else "")
    return {"commit": commit, "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"}


def ask_git(*arguments: str) -> str:
    """Return git's output for the checkout; empty if git fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]
