"""The attack battery (attacks/): everything a command tries ends as the table says, in every tier that works here."""

import asyncio
import functools
import json
import os
import tempfile
from collections import Counter
from contextlib import aclosing
from pathlib import Path

import pytest

from services.tools.sandbox.command import INTERPRETER, CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor import syscalls
from services.tools.sandbox.supervisor.policy import Policy
from services.tools.sandbox.supervisor.seccomp import ARCHITECTURES
from services.tools.sandbox.supervisor.syscalls import Numbers
from tests.support.tools.tiers import TIERS
from tests.tools.sandbox.attacks.table import ATTEMPTS, Attempt
from tests.tools.sandbox.attacks.victims import as_json, victims

ON_OLDER = {"process on Linux 5.15": ("process", 1), "bubblewrap on Linux 6.1": ("bubblewrap", 2)}
"""Tiers as they are where Landlock has an earlier ABI."""

RUNS = [*TIERS, *(name for name, (tier, _) in ON_OLDER.items() if tier in TIERS)]

SIGNALS = "signal "
"""Attempts at other processes of the user, which the process tier refuses from Linux 6.12 on (ABI 6)."""

PROGRAM = Path(__file__).with_name("attacks") / "attempts.py"
MACHINE = os.uname().machine
OTHERS: dict[str, Numbers] = {
    "clone": syscalls.CLONE,
    "tgkill": syscalls.SIGNALLING[2],
    "prlimit64": syscalls.PRLIMIT64,
    "seccomp": syscalls.SECCOMP,
    "prctl": (157, 167),
    "capset": (126, 91),
}


def numbers() -> dict[str, int]:
    column = ARCHITECTURES[MACHINE][1]
    known = OTHERS | {name: pair for calls in syscalls.DENIED.values() for name, pair in calls.items()}
    return {name: number for name, pair in known.items() if (number := pair[column]) is not None}


def list_attempts(run: str = "") -> list[Attempt]:
    """Return the attempts whose system calls this machine has and that the run's tier must refuse."""
    known = numbers()
    missing = {f"call {name} with nothing" for calls in syscalls.DENIED.values() for name in calls if name not in known}
    if MACHINE != "x86_64":
        missing |= {"a 32-bit call", "an x32 call"}
    allowed = SIGNALS if ON_OLDER.get(run, ("", 0))[0] == "process" else "nothing"
    return [item for item in ATTEMPTS if item.name not in missing and not item.name.startswith(allowed)]


@functools.cache
def run_attempts(run: str) -> tuple[dict[str, str], list[str]]:
    """Make all attempts in one command, each in its own process; return how each ended, and the harm done."""
    with tempfile.TemporaryDirectory(prefix="headrace-attacks-") as folder:
        return asyncio.run(_endings(Path(folder), run))


async def _endings(folder: Path, run: str) -> tuple[dict[str, str], list[str]]:
    tier, abi_max = ON_OLDER.get(run, (run, None))
    (folder / "workspace").mkdir()
    with victims(folder) as (found, harm):
        attempts = [(item.name, item.code) for item in list_attempts(run)]
        given = {"victims": as_json(found), "numbers": numbers(), "attempts": attempts}
        policy = Policy(
            command=(INTERPRETER, "-I", "-S", str(PROGRAM)),
            folder=str(folder / "workspace"),
            input=json.dumps(given),
            readable=(str(PROGRAM), found.shown),
            home_parent=str(folder),
            landlock_abi_max=abi_max,
            namespaces=tier == "bubblewrap",
        )
        output = ""
        async with asyncio.timeout(600), aclosing(stream_command(policy)) as events:
            async for event in events:
                output += event.text if isinstance(event, CommandOutput) else ""
                output += f"{event}\n" if isinstance(event, CommandExit) else ""
        return {name: ending for line in output.splitlines() for name, _, ending in [line.partition("\t")]}, harm()


@pytest.mark.parametrize(
    ("run", "attempt"),
    [pytest.param(run, item, id=f"{run}-{item.name}") for run in RUNS for item in list_attempts(run)],
)
def test_every_attempt_ends_as_the_table_says(run: str, attempt: Attempt) -> None:
    tier, _ = ON_OLDER.get(run, (run, None))
    ending = run_attempts(run)[0].get(attempt.name, "never made")
    expected = attempt.bubblewrap if tier == "bubblewrap" else attempt.process
    # A namespace hides its target, which counts as a denial; without one, a missing target is a bug of the attempt.
    assert ending.replace("HIDDEN", "DENIED" if tier == "bubblewrap" else "HIDDEN").split()[0] == expected, ending


@pytest.mark.parametrize("run", RUNS)
def test_no_attempt_reaches_the_victims(run: str) -> None:
    exits, harm = run_attempts(run)
    assert harm == []
    assert str(CommandExit("exited", 0)) in exits


def test_the_table_is_well_formed() -> None:
    assert len(ATTEMPTS) >= 60
    assert max(Counter(item.name for item in ATTEMPTS).values()) == 1
    assert all(item.reason for item in ATTEMPTS if "ALLOWED" in (item.process, item.bubblewrap))
