"""Ends the streams of those with whom a chat is shared no more, as streams end whose key is revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from headrace.errors import HeadraceError, NotFound
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.identity import require_identity

LOOK_S = 2.0
"""Time between looks, one small question to memory for each stream of somebody in a chat of another."""

log = structlog.get_logger()


@asynccontextmanager
async def ending_with_access(peers: Peers, run_id: str) -> AsyncGenerator[None]:
    """Run the block for as long as the caller may read the run's chat; raises NotFound. While memory does not answer
    nothing is ended."""
    ending = asyncio.timeout(None)
    watch = asyncio.create_task(_watch_access(peers, run_id, ending))
    try:
        async with ending:
            yield
    except TimeoutError:
        if ending.expired():
            raise NotFound(f"run {run_id} does not exist", runId=run_id) from None
        raise
    finally:
        watch.cancel()
        await asyncio.wait([watch])


async def _watch_access(peers: Peers, run_id: str, ending: asyncio.Timeout) -> None:
    loop, caller = asyncio.get_running_loop(), require_identity()
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            if await stored_runs.find_chat_owner(peers, run_id=run_id) != caller:
                continue
        except NotFound:
            pass
        except HeadraceError as error:
            log.warning("access not known", run_id=run_id, reason=error.reason)
            continue
        log.info("reader ended", run_id=run_id)
        ending.reschedule(loop.time())
        return
