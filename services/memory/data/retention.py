"""Daily deletion of orphaned blobs and, if configured, of unused chats.

The retention file is read before each use; without one the same period applies to all chats.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from headrace.errors import HeadraceError, StaleLease
from headrace.regular_files import read_regular_file
from services.memory.data.holds import HoldStore, check_chat
from services.memory.storage.index_rows import UNCHANGED_MAX
from services.memory.storage.records.erasures import StoredClaim
from services.memory.storage.records.kind import make_version
from services.memory.storage.work import WORK, Work
from services.runtime.clock import now_ms, now_s
from services.runtime.ending import guard_task
from services.runtime.files.refused_files import REFUSED_FILES
from services.runtime.randomness import new_uuid

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

CLAIM_MS = 10 * 60_000
"""Time of a claim, which is extended after half of it."""

_CLEANUP = "cleanup"

ORPHAN_AGE_S = DAY_S
"""Longest plausible time between a blob and its chat's first line."""

log = structlog.get_logger()


async def prune_chats(
    engine: Engine, rules: RetentionRules | SameForAll, keep_claim: Callable[[], Awaitable[None]] | None = None
) -> list[str]:
    """Delete chats unused for longer than `rules` allow, if all their runs have ended and no hold applies; return their
    ids. `keep_claim` is called before each."""
    gone: list[str] = []
    shortest = rules.find_shortest()
    if shortest is None:
        return gone
    holds = await HoldStore(engine).read_in_force()
    after: tuple[int, str] | None = None
    while entries := await engine.index.list_unchanged(_find_time(shortest), after):
        after = entries[-1].updated_at, entries[-1].chat_id
        for entry in entries:
            days = rules.find_days(entry.tenant, entry.last_agent_key)
            if days is None or entry.updated_at >= _find_time(days):
                continue
            if keep_claim is not None:
                await keep_claim()
            try:
                await check_chat(engine, holds, entry.owner, entry.chat_id)
                await engine.chats.delete(entry.chat_id)
                await engine.audit.record_of(entry.tenant, "chat.deleted", "retention", chatId=entry.chat_id)
            except HeadraceError as error:  # a user has just asked in it or deleted it, or it is held
                log.info("chat kept", chat_id=entry.chat_id, reason=error.reason)
            else:
                gone.append(entry.chat_id)
        if len(entries) < UNCHANGED_MAX:
            break
    return gone


class CleanupClaim:
    """The claim of this process on the cleanup of its store, which one service does for all."""

    def __init__(self, engine: Engine) -> None:
        self._claims = engine.records.claims
        self._owner = new_uuid()
        self._until = 0

    async def take(self) -> bool:
        """Claim the cleanup for CLAIM_MS; return False if another process has it."""
        now, stored = now_ms(), await self._claims.find(_CLEANUP)
        if stored is not None and stored.owner != self._owner and stored.claimed_until > now:
            return False
        claim = StoredClaim(_CLEANUP, make_version(), self._owner, now + CLAIM_MS)
        if not await self._claims.put(claim, stored.version if stored is not None else 0):
            return False
        self._until = claim.claimed_until
        return True

    async def keep(self) -> None:
        """Extend the claim, if half of its time has passed. Raises StaleLease if another process has it."""
        if self._until - now_ms() < CLAIM_MS // 2 and not await self.take():
            raise StaleLease("another process cleans up")

    async def release(self) -> None:
        stored = await self._claims.find(_CLEANUP)
        if stored is not None and stored.owner == self._owner:
            await self._claims.put(replace(stored, version=make_version(), claimed_until=0), stored.version)


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
        is_done = await clean_up(engine, retention, audit_days)
        # Whoever cleans up now may not come to the end.
        await asyncio.sleep(DAY_S if is_done else CLAIM_MS / 1000)


async def clean_up(engine: Engine, retention: RetentionFile, audit_days: float | None) -> bool:
    """Delete expired data; return False if another process does. A failure is logged, retried the next day, and stops
    nothing else."""
    claim, is_taken = CleanupClaim(engine), True
    with _logging_failure("claim"):
        await engine.index.wait_until_complete()
        is_taken = await claim.take()
    if not is_taken:
        return False
    with _logging_failure("chats"):
        await engine.index.wait_until_complete()
        gone = await prune_chats(engine, await asyncio.to_thread(retention.read), claim.keep)
        log.info("chats tidied", pruned=len(gone))
    with _logging_failure("blobs"):
        await engine.index.wait_until_complete()
        orphans = await engine.blobs.delete_orphans(ORPHAN_AGE_S)
        log.info("blobs tidied", orphans=len(orphans))
    if audit_days is not None:
        # The last: where the disk is full, this writes, and the others have made room.
        with _logging_failure("audit log"):
            await engine.audit.store.forget(round((now_s() - audit_days * DAY_S) * 1000))
    with _logging_failure("claim"):
        await claim.release()
    return True


@contextmanager
def _logging_failure(what: str) -> Generator[None]:
    try:
        yield
    except Exception:
        log.exception("not tidied", what=what)
