"""Commands in a sandbox, and a check for their leftover processes."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

from services.tools.sandbox.command import CommandExit, CommandOutput, Event, stream_command
from services.tools.sandbox.supervisor.policy import Policy


def bash(folder: Path, command: str, tier: str = "process", **settings: Any) -> Policy:
    settings = {"home_parent": str(folder.parent), "namespaces": tier == "bubblewrap", **settings}
    return Policy(("bash", "-c", command), str(folder), **settings)


async def events(policy: Policy) -> list[Event]:
    async with asyncio.timeout(300), aclosing(stream_command(policy)) as stream:
        return [event async for event in stream]


async def run_command(policy: Policy) -> tuple[str, CommandExit]:
    *outputs, ending = await events(policy)
    assert isinstance(ending, CommandExit)
    return "".join(event.text for event in outputs if isinstance(event, CommandOutput)), ending


def is_running(marker: str) -> bool:
    """Return whether a process has `marker` as an argument."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and marker.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False
