"""Daily deletion of orphaned blobs and, if an age is set, of unused chats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError
from services.runtime.clock import now_s
from services.runtime.ending import guard_task

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine

DAY_S = 24 * 60 * 60

ORPHAN_AGE_S = DAY_S
"""Longest plausible time between a blob and its chat's first line."""

log = structlog.get_logger()


async def prune_chats(engine: Engine, days: float) -> list[str]:
    """Delete chats whose last line is older than `days` and whose runs have all ended; return their ids."""
    gone: list[str] = []
    for chat_id in await engine.index.list_unchanged_since(round((now_s() - days * DAY_S) * 1000)):
        try:
            tenant = (await engine.index.find_entry(chat_id)).tenant
            await engine.chats.delete(chat_id)
            await engine.audit.record_of(tenant, "chat.deleted", "retention", chatId=chat_id)
        except HeadraceError as error:  # somebody has just asked in it, or deleted it
            log.info("chat kept", chat_id=chat_id, reason=error.reason)
        else:
            gone.append(chat_id)
    return gone


@asynccontextmanager
async def run_daily_cleanup(
    engine: Engine, days: float | None, audit_days: float | None = None
) -> AsyncGenerator[None]:
    """Clean up every day while inside the block; without `days` no chat is deleted, without `audit_days` no line of the
    audit log."""
    daily = guard_task(asyncio.create_task(_clean_up_daily(engine, days, audit_days)))
    try:
        yield
    finally:
        daily.cancel()
        await asyncio.wait([daily])


async def _clean_up_daily(engine: Engine, days: float | None, audit_days: float | None) -> None:
    while True:
        try:
            if audit_days is not None:
                await engine.audit.store.forget(round((now_s() - audit_days * DAY_S) * 1000))
            await engine.index.wait_until_complete()
            orphans = await engine.blobs.delete_orphans(ORPHAN_AGE_S)
            gone = [] if days is None else await prune_chats(engine, days)
            log.info("chats tidied", orphans=len(orphans), pruned=len(gone), older_than_days=days)
        except Exception:
            log.exception("chats not tidied")  # tomorrow is another day
        await asyncio.sleep(DAY_S)
