"""Logs of the services, and unhandled errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trials.simulation.world.world import World

DAMAGE = ("log damaged", "log cannot be read", "schedule cannot be read")
"""Log events of memory for a disk that lost more than a power cut may take."""

ALLOWED: dict[str, str] = {}
"""Events of unexpected errors that faults explain, each with its reason."""


def judge_logs(world: World) -> list[str]:
    """Check that services logged no unexpected error and no damage."""
    return [
        f"{entry.get('process')}: {entry['event']}: {entry.get('exception') or entry.get('error', '')}"
        for entry in world.logged
        if entry["event"] in DAMAGE
        or (entry["level"] in ("error", "critical") and "exception" in entry and entry["event"] not in ALLOWED)
    ]


def judge_tasks(world: World) -> list[str]:
    """Check that no task of a living process failed with an error that was never retrieved."""
    return [
        f"{process.name}: the error of {task!r} was not retrieved"
        for process in world.all_processes
        if not process.is_dead
        for task in process.tasks
        if task.done() and task._log_traceback  # pyright: ignore[reportAttributeAccessIssue] - asyncio's own mark
    ]
