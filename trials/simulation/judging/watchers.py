"""Watchers: a watcher of waiting gates has the same list as ListGates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trials.simulation.people.watchers import list_waiting

if TYPE_CHECKING:
    from trials.simulation.people.users import User

LOOKS, LOOK_S = 120, 1.0
"""How often both are compared; a stream that broke silently is detected by its keepalive."""


async def judge_watchers(judge: User, watchers: Iterable[User]) -> list[str]:
    """Compare repeatedly until each watcher has agreed with the list once."""
    problems: list[str] = []
    for watcher in watchers:
        listed = None
        for _ in range(LOOKS):
            listed = await list_waiting(judge)
            if listed == watcher.watched:
                break
            await asyncio.sleep(LOOK_S)
        else:
            problems.append(f"{watcher.name} watches gates and has {watcher.watched}, and the list is {listed}")
    return problems
