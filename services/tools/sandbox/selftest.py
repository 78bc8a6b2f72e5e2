"""Whether the sandbox really denies what it promises, found by trying, at start-up."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.tools.sandbox.policy import Policy
from services.tools.sandbox.process import Exited, Output, run

PROBES = str(Path(__file__).with_name("probes.py"))

TIMEOUT_S = 20.0
"""For all probes; they take a tenth of a second on an idle machine."""

Tier = Literal["process", "none"]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What commands run in here."""

    tier: Tier | None
    """None: nothing works, and commands are refused."""

    problem: str = ""
    """Why the process tier does not work; empty when it does."""

    readable: tuple[str, ...] = ()
    """Paths that the operator lets all commands read."""

    writable: tuple[str, ...] = ()


async def find_sandbox(*, allow_unsandboxed: bool) -> Sandbox:
    """The strongest tier that works."""
    return choose(await try_process_tier(), allow_unsandboxed=allow_unsandboxed)


def choose(problem: str, *, allow_unsandboxed: bool) -> Sandbox:
    """The tier to take; `none` only where the operator has allowed it."""
    if not problem:
        return Sandbox("process")
    return Sandbox("none" if allow_unsandboxed else None, problem)


async def try_process_tier(*, confined: bool = True) -> str:
    """What the process tier fails to deny, or why it does not start; empty: it works.

    `confined` False tries the probes where nothing is denied, to see that they notice.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-selftest-") as outside:
        return judge(*await _said(_probing(Path(outside), confined)))


def judge(said: str, ending: Exited) -> str:
    """The problem, if any, that the probes' output and end show."""
    if ending.error:
        return ending.error
    *allowed, last = said.splitlines() or [""]
    if ending.reason != "exited" or last != "done":
        return f"the probes ended early: {ending.reason}, status {ending.status}"
    return "a command " + ", ".join(allowed) if allowed else ""


def _probing(outside: Path, confined: bool) -> Policy:
    secret, folder = outside / "secret", outside / "workspace"
    secret.touch()
    folder.mkdir()
    return Policy(
        command=(_interpreter(), "-I", "-S", PROBES, str(secret), str(os.getpid())),
        folder=str(folder),
        readable=(PROBES,),
        home_parent=str(outside),
        confined=confined,
        timeout_s=TIMEOUT_S,
    )


async def _said(policy: Policy) -> tuple[str, Exited]:
    said, ending = "", Exited("failed")
    async with aclosing(run(policy)) as events:
        async for event in events:
            match event:
                case Output(text=text):
                    said += text
                case Exited():
                    ending = event
    return said, ending


def _interpreter() -> str:
    """The real one: a virtual environment's is a link into a place that commands may not read."""
    return os.path.realpath(sys.executable)
