"""Which tier of the sandbox works: whether it really denies what it promises, found by trying, at start-up."""

from __future__ import annotations

import os
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Literal

from services.tools.sandbox import bubblewrap
from services.tools.sandbox.command_run import Exited, Output, run
from services.tools.sandbox.confinement.policy import Policy
from services.tools.sandbox.supervised_command import INTERPRETER
from services.tools.sandbox.tier import Sandbox

PROBES = str(Path(__file__).with_name("probes.py"))

TIMEOUT_S = 20.0
"""For all probes; they take a tenth of a second on an idle machine."""

NAMESPACES = ("ipc", "mnt", "net", "pid", "user", "uts")

Tested = Literal["bubblewrap", "process", "none"]
"""`none` tries the probes where nothing is denied, to see that they notice."""


async def find_sandbox(wanted: str, *, allow_unsandboxed: bool) -> Sandbox:
    """The tier that is `wanted` (HEADRACE_TOOLS_SANDBOX), or for auto the strongest one that works."""
    match wanted:
        case "auto":
            problems: dict[Tested, str] = {}
            for tier in ("bubblewrap", "process"):
                if not (problem := await try_tier(tier)):
                    break
                problems[tier] = problem
            return choose(problems, allow_unsandboxed=allow_unsandboxed)
        case "bubblewrap" | "process":
            problem = await try_tier(wanted)
            return Sandbox(None if problem else wanted, problem)
        case "external":
            return Sandbox("external", await try_tier("process"))
        case _:
            return Sandbox("none")


def choose(problems: dict[Tested, str], *, allow_unsandboxed: bool) -> Sandbox:
    """The strongest tier without a problem; `none` only where the operator has allowed it."""
    problem = "; ".join(f"{tier}: {problem}" for tier, problem in problems.items())
    if "bubblewrap" not in problems:
        return Sandbox("bubblewrap")
    if "process" not in problems:
        return Sandbox("process", problem)
    return Sandbox("none" if allow_unsandboxed else None, problem)


async def try_tier(tier: Tested) -> str:
    """What the tier fails to deny, or why it does not start; empty: it works."""
    if tier == "bubblewrap" and not bubblewrap.is_installed():
        return f"{bubblewrap.PROGRAM} is not installed"
    with tempfile.TemporaryDirectory(prefix="headrace-selftest-") as outside:
        return judge(*await _said(_probing(Path(outside), tier)))


def judge(said: str, ending: Exited) -> str:
    """The problem, if any, that the probes' output and end show."""
    if ending.error:
        return f"{ending.error} {said}".strip()
    *allowed, last = said.splitlines() or [""]
    if ending.reason != "exited" or last != "done":
        return f"the probes ended early: {ending.reason}, status {ending.status}"
    return "a command " + ", ".join(allowed) if allowed else ""


def _probing(outside: Path, tier: Tested) -> Policy:
    secret, folder = outside / "secret", outside / "workspace"
    secret.touch()
    folder.mkdir()
    return Policy(
        command=(INTERPRETER, "-I", "-S", PROBES, str(secret), str(os.getpid()), *_namespaces(tier)),
        folder=str(folder),
        readable=(PROBES,),
        home_parent=str(outside),
        confined=tier != "none",
        namespaces=tier == "bubblewrap",
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


def _namespaces(tier: Tested) -> list[str]:
    """Ours, which a command in the tier must not be in."""
    return [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES] if tier == "bubblewrap" else []
