"""What services log, and the errors that nobody has looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trials.simulation.world.world import World

DAMAGE = ("log damaged", "log cannot be read", "schedule cannot be read")
"""What memory logs of a disk that has lost more than a cut of the power may take."""

ALLOWED: dict[str, str] = {}
"""Events of errors that nobody has named and faults explain, each with its reason."""


def judge_logs(world: World) -> list[str]:
    """Services met no error that nobody has named, and no damage."""
    return [
        f"{entry.get('process')}: {entry['event']}: {entry.get('exception') or entry.get('error', '')}"
        for entry in world.logged
        if entry["event"] in DAMAGE
        or (entry["level"] in ("error", "critical") and "exception" in entry and entry["event"] not in ALLOWED)
    ]


def judge_tasks(world: World) -> list[str]:
    """No task of a living process has failed without anybody having looked at its error."""
    return [
        f"{process.name}: nobody has looked at the error of {task!r}"
        for process in world.all_processes
        if not process.is_dead
        for task in process.tasks
        if task.done() and task._log_traceback  # pyright: ignore[reportAttributeAccessIssue] - asyncio's own mark
    ]
