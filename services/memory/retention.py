"""Chats that nobody has used for long go, when somebody has said how long that is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from services.memory.store import Store

DAY_S = 24 * 60 * 60

log = structlog.get_logger()


async def prune(store: Store, days: float) -> list[str]:
    """Delete chats whose last line is older than `days` and whose runs have all ended; their ids."""
    gone: list[str] = []
    for chat_id in await store.unchanged_since(round((time.time() - days * DAY_S) * 1000)):
        try:
            await store.delete(chat_id)
        except HeadraceError as error:  # somebody has just asked in it, or deleted it
            log.info("chat kept", chat_id=chat_id, reason=error.reason)
        else:
            gone.append(chat_id)
    return gone


@asynccontextmanager
async def pruning(store: Store, days: float | None) -> AsyncGenerator[None]:
    """Inside the block, prune every day; without `days` never."""
    if days is None:
        yield
        return
    daily = asyncio.create_task(_daily(store, days))
    try:
        yield
    finally:
        daily.cancel()
        await asyncio.wait([daily])


async def _daily(store: Store, days: float) -> None:
    while True:
        try:
            gone = await prune(store, days)
            log.info("chats pruned", chats=len(gone), older_than_days=days)
        except Exception:
            log.exception("chats not pruned")  # tomorrow is another day
        await asyncio.sleep(DAY_S)
