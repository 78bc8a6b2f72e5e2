"""Places among an API key's live runs, kept for a run while its query is stored."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, Overloaded, QuotaExceeded
from services.memory.log.lines import Query
from services.runtime.auth import identity
from services.runtime.capacity import RETRY_AFTER_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from headrace.v1 import memory_pb2
    from services.memory.chats.access import ChatAccess
    from services.memory.log.lines import Known
    from services.memory.storage.key_uses import KeyUses


@asynccontextmanager
async def keeping_place(
    uses: KeyUses, access: ChatAccess, request: memory_pb2.AppendRequest, lines: list[Known]
) -> AsyncGenerator[None]:
    """Keep a place for the run that the lines begin, where the caller's key has a limit. Raises QuotaExceeded."""
    who, most = identity.get_identity(), request.key_runs_max
    if not (most and isinstance(lines[0], Query) and who is not None and who.credential):
        yield
        return
    chat = await access.load_chat_or_empty(request.chat_id)
    if chat.find_duplicate(lines) or request.run_id in chat.info.runs:  # it has its place, and is answered as at first
        yield
        return
    if not await uses.reserve_run(who.tenant, who.credential, request.run_id, most):
        raise QuotaExceeded(
            f"the API key has {most} live runs already; try again when one has ended",
            retry_after_s=RETRY_AFTER_S,
            limit=most,
        )
    try:
        yield
    except Overloaded:
        raise  # it may have been stored; if not, its place is free again after a minute
    except HeadraceError:
        await uses.release_run(who.credential, request.run_id)
        raise
