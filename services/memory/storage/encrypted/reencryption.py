"""Converts stored data to its current form after encryption was switched on or off, or a key was rotated.

Each chat and record is rewritten as a whole or not at all, and data already in the current form is skipped, so that an
interrupted pass continues where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import structlog

from headrace.errors import HeadraceError
from services.memory.encryption.envelope import WrongCiphertext
from services.runtime.clock import monotonic_s
from services.runtime.ending import guard_task

if TYPE_CHECKING:
    from services.memory.encryption.data_keys import DataKeys
    from services.memory.encryption.keyring import Keyring

LOOK_S = 2.0
"""Interval at which a pass is considered."""

RETRY_S = 600.0
"""Pause after an incomplete pass, because a key was unavailable or a log is damaged."""

SETTLE_S = 5.0
"""Longer than other services take to learn of a new key; data they write until then is not covered by a pass."""

SHARE = 0.2
"""Share of the time that a background pass uses."""

FAILURES_SHOWN_MAX = 20

log = structlog.get_logger()


@dataclass(slots=True)
class PassReport:
    looked_at: int = 0
    rewritten: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The first failures, each with name and reason."""
    failed: int = 0


Piece: TypeAlias = tuple[str, Callable[[], Awaitable[bool]]]
"""A name, and a function that converts the named data to its current form and returns whether that was necessary."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    keys: Keyring
    stored: DataKeys
    sources: tuple[Callable[[], AsyncIterator[Piece]], ...]
    """Yield all stored data of the engine, piece by piece."""
    scrub: Callable[[], Awaitable[None]]
    """Clear traces of rewritten pieces in files."""


async def run_pass(rewriting: Rewriting, share: float = 1.0) -> PassReport:
    """Convert all stored data to the goal, using a `share` of the time; record the goal if nothing failed."""
    goal, report = rewriting.keys.goal, PassReport()
    for list_pieces in rewriting.sources:
        async for name, rewrite in list_pieces():
            began_s = monotonic_s()
            report.looked_at += 1
            try:
                report.rewritten += await rewrite()
            except (HeadraceError, WrongCiphertext) as error:
                report.failed += 1
                if len(report.failures) < FAILURES_SHOWN_MAX:
                    report.failures.append((name, str(error) or "it is not what was encrypted"))
            await asyncio.sleep((monotonic_s() - began_s) * (1 / share - 1))
    if report.rewritten:
        await rewriting.scrub()
    if not report.failed and rewriting.keys.goal == goal:
        await asyncio.to_thread(rewriting.stored.write_goal, goal)
    return report


@asynccontextmanager
async def running_passes(rewriting: Rewriting) -> AsyncGenerator[None]:
    """Run passes whenever they are needed while inside the block."""
    running = guard_task(asyncio.create_task(run_passes(rewriting)))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def run_passes(rewriting: Rewriting) -> None:
    """Run a pass whenever stored data is not in its current form, until cancelled."""
    reached = ""
    while rewriting.keys.is_on:
        await asyncio.sleep(LOOK_S)
        goal = rewriting.keys.goal
        if goal == reached:
            continue
        try:
            reached = await asyncio.to_thread(rewriting.stored.read_goal)
            if goal == reached:
                continue
            await asyncio.sleep(SETTLE_S)
            log.warning("encryption of what is stored begins", goal=goal)
            report = await run_pass(rewriting, SHARE)
        except (HeadraceError, OSError) as error:
            log.warning("encryption of stored data continues later", error=str(error))
            await asyncio.sleep(RETRY_S)
            continue
        log.warning("encryption of what is stored ends", rewritten=report.rewritten, left=report.failed, goal=goal)
        if report.failed:
            log.error("not encrypted as it should be", some=[name for name, _ in report.failures])
            await asyncio.sleep(RETRY_S)
