"""Tiers of the sandbox, and the test that finds the strongest one that really denies what it promises."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prometheus_client import Gauge

from services.runtime.net.allow_list import AllowList
from services.tools.sandbox import bubblewrap
from services.tools.sandbox.command import INTERPRETER, CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor.policy import Policy

Tier = Literal["bubblewrap", "process", "external", "none"]

_TIER = Gauge("headrace_sandbox_tier", "1 for the tier that commands run in; `refused`: none works.", ("tier",))

PROBES = str(Path(__file__).with_name("probes.py"))

TIMEOUT_S = 20.0
"""Time for the probes, which take a tenth of a second on an idle machine."""

NAMESPACES = ("ipc", "mnt", "net", "pid", "user", "uts")

UNSHARED = (
    "it does not hide that paths and processes of other tenants exist; HEADRACE_TOOLS_SANDBOX=process accepts that"
)

Tested = Literal["bubblewrap", "process", "none"]
"""Tiers to try; in `none`, where nothing is denied, the probes must notice that."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    tier: Tier | None
    """Tier in force; None: none works, and commands are refused."""

    problem: str = ""
    """Why a stronger tier, or for `external` the process tier inside, is not in force."""

    readable: tuple[str, ...] = ()

    writable: tuple[str, ...] = ()

    mark: str = "headrace"
    """The service's mark on everything it starts (leftovers.py)."""

    allow_list: AllowList | None = None
    """Hosts that commands may reach; None: no network, as in tiers without network namespaces."""

    @property
    def is_confined(self) -> bool:
        return self.tier in ("process", "bubblewrap") or (self.tier == "external" and not self.problem)

    @property
    def has_namespaces(self) -> bool:
        return self.tier == "bubblewrap"

    def show_in_metrics(self) -> None:
        _TIER.labels(self.tier or "refused").set(1)


async def find_sandbox(
    wanted: str, *, allow_unsandboxed: bool, has_tenants: bool = False, mark: str = "headrace"
) -> Sandbox:
    """Return the sandbox that `wanted` names; `mark` is the service's (leftovers.py).

    `auto` rules out the process tier if it would run several tenants' commands: a command there can tell that a path or
    process of another tenant exists.
    """
    match wanted:
        case "auto":
            problems: dict[Tested, str] = {}
            for tier in ("bubblewrap", "process"):
                if not (problem := await try_tier(tier, mark)):
                    break
                problems[tier] = problem
            return choose_tier(problems, allow_unsandboxed=allow_unsandboxed, has_tenants=has_tenants)
        case "bubblewrap" | "process":
            problem = await try_tier(wanted, mark)
            return Sandbox(None if problem else wanted, problem)
        case "external":
            return Sandbox("external", await try_tier("process", mark))
        case _:
            return Sandbox("none")


def choose_tier(problems: Mapping[Tested, str], *, allow_unsandboxed: bool, has_tenants: bool = False) -> Sandbox:
    if has_tenants and "bubblewrap" in problems and not allow_unsandboxed:
        problems = {"process": UNSHARED, **problems}
    problem = "; ".join(f"{tier}: {problem}" for tier, problem in problems.items())
    if "bubblewrap" not in problems:
        return Sandbox("bubblewrap")
    if "process" not in problems:
        return Sandbox("process", problem)
    return Sandbox("none" if allow_unsandboxed else None, problem)


async def try_tier(tier: Tested, mark: str = "headrace") -> str:
    """Try a tier and return why it fails; empty if it works."""
    if tier == "bubblewrap" and bubblewrap.find_program() is None:
        return f"{bubblewrap.PROGRAM} is not installed"
    with tempfile.TemporaryDirectory(prefix=f"{mark}-selftest-") as outside:
        return find_failures(*await _collect_output(_make_policy(Path(outside), tier, mark)))


def find_failures(output: str, ending: CommandExit) -> str:
    if ending.error:
        return f"{ending.error} {output}".strip()
    *allowed, last = output.splitlines() or [""]
    if ending.reason != "exited" or last != "done":
        return f"the probes ended early: {ending.reason}, status {ending.status}"
    return "a command " + ", ".join(allowed) if allowed else ""


def _make_policy(outside: Path, tier: Tested, mark: str) -> Policy:
    secret, folder = outside / "secret", outside / "workspace"
    secret.touch()
    folder.mkdir()
    # A command in the tier must not share these.
    own = [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES] if tier == "bubblewrap" else []
    return Policy(
        command=(INTERPRETER, "-I", "-S", PROBES, str(secret), str(os.getpid()), *own),
        folder=str(folder),
        readable=(PROBES,),
        home_parent=str(outside),
        mark=mark,
        confined=tier != "none",
        namespaces=tier == "bubblewrap",
        timeout_s=TIMEOUT_S,
    )


async def _collect_output(policy: Policy) -> tuple[str, CommandExit]:
    output, ending = "", CommandExit("failed")
    async with aclosing(stream_command(policy)) as events:
        async for event in events:
            match event:
                case CommandOutput(text=text):
                    output += text
                case CommandExit():
                    ending = event
    return output, ending
