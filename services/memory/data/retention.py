"""Daily deletion of orphaned blobs and, if configured, of unused chats.

The retention file is read before each use; without one the same period applies to all chats.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError
from headrace.regular_files import read_regular_file
from services.memory.data.holds import HoldStore, check_chat
from services.memory.storage.work import WORK, Work
from services.runtime.clock import now_s
from services.runtime.ending import guard_task
from services.runtime.files.refused_files import REFUSED_FILES

if TYPE_CHECKING:
    from services.memory.data.retention_rules import RetentionRules
    from services.memory.storage.engine import Engine

FILE_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class SameForAll:
    """The same retention period for every chat."""

    days: float | None
    """None: for ever."""

    def find_days(self, tenant: str, agent_key: str) -> float | None:
        return self.days

    def find_shortest(self) -> float | None:
        return self.days


class RetentionFile:
    def __init__(self, path: Path | None, days: float | None) -> None:
        """Read `path` before each use; `days` apply to chats it does not mention, None: forever."""
        self._path = path
        self._days = days

    def read(self) -> RetentionRules | SameForAll:
        """Return the file's current rules; blocks.

        Raises ValueError for an invalid file, and OSError: without its rules nothing may be deleted.
        """
        if self._path is None:
            return SameForAll(self._days)
        # Imported late: pydantic takes 7 MB, which a service without such a file does not need.
        from services.memory.data.retention_rules import NEVER, RetentionRules
        from services.runtime.files.refused_files import load_yaml_model

        try:
            rules = load_yaml_model(read_regular_file(self._path, FILE_BYTES_MAX), RetentionRules)
        except (ValueError, OSError):
            REFUSED_FILES.labels("retention").set(1)
            raise
        REFUSED_FILES.labels("retention").set(0)
        if rules.chat_days is not None:
            return rules
        return rules.model_copy(update={"chat_days": NEVER if self._days is None else self._days})


DAY_S = 24 * 60 * 60

ORPHAN_AGE_S = DAY_S
"""Longest plausible time between a blob and its chat's first line."""

log = structlog.get_logger()


async def prune_chats(engine: Engine, rules: RetentionRules | SameForAll) -> list[str]:
    """Delete chats unused for longer than `rules` allow, if all their runs have ended and no hold applies; return their
    ids."""
    gone: list[str] = []
    shortest = rules.find_shortest()
    if shortest is None:
        return gone
    holds = await HoldStore(engine).read_in_force()
    for chat_id in await engine.index.list_unchanged_since(_find_time(shortest)):
        try:
            entry = await engine.index.find_row(chat_id)
            days = rules.find_days(entry.tenant, entry.last_agent_key)
            if days is None or entry.updated_at >= _find_time(days):
                continue
            await check_chat(engine, holds, entry.owner, chat_id)
            await engine.chats.delete(chat_id)
            await engine.audit.record_of(entry.tenant, "chat.deleted", "retention", chatId=chat_id)
        except HeadraceError as error:  # a user has just asked in it or deleted it, or it is held
            log.info("chat kept", chat_id=chat_id, reason=error.reason)
        else:
            gone.append(chat_id)
    return gone


def _find_time(days: float) -> int:
    return round((now_s() - days * DAY_S) * 1000)


@asynccontextmanager
async def run_daily_cleanup(
    engine: Engine, retention: RetentionFile, audit_days: float | None = None
) -> AsyncGenerator[None]:
    """Clean up every day while inside the block; without `audit_days` the audit log keeps all lines."""
    daily = guard_task(asyncio.create_task(_clean_up_daily(engine, retention, audit_days)))
    try:
        yield
    finally:
        daily.cancel()
        await asyncio.wait([daily])


async def _clean_up_daily(engine: Engine, retention: RetentionFile, audit_days: float | None) -> None:
    WORK.set(Work.MAINTENANCE)
    while True:
        await clean_up(engine, retention, audit_days)
        await asyncio.sleep(DAY_S)


async def clean_up(engine: Engine, retention: RetentionFile, audit_days: float | None) -> None:
    """Delete expired data. A failure is logged, retried the next day, and stops nothing else."""
    with _logging_failure("chats"):
        await engine.index.wait_until_complete()
        gone = await prune_chats(engine, await asyncio.to_thread(retention.read))
        log.info("chats tidied", pruned=len(gone))
    with _logging_failure("blobs"):
        await engine.index.wait_until_complete()
        orphans = await engine.blobs.delete_orphans(ORPHAN_AGE_S)
        log.info("blobs tidied", orphans=len(orphans))
    if audit_days is not None:
        # The last: where the disk is full, this writes, and the others have made room.
        with _logging_failure("audit log"):
            await engine.audit.store.forget(round((now_s() - audit_days * DAY_S) * 1000))


@contextmanager
def _logging_failure(what: str) -> Generator[None]:
    try:
        yield
    except Exception:
        log.exception("not tidied", what=what)
