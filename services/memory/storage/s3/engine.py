"""An engine with its blobs in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError, InvalidRequest, KeyUnavailable, LogDamaged
from services.memory.storage import log_copy
from services.memory.storage.s3.blobs import WAITING_MAX, S3Blobs
from services.memory.storage.s3.bucket import open_bucket
from services.memory.storage.s3.requests import LIMITS, Limits
from services.runtime.ending import complete

if TYPE_CHECKING:
    from services.memory.storage.engine import Blobs, ChatLogs, Engine
    from services.memory.storage.s3.settings import S3Settings
    from services.runtime.auth.identity import Identity

OTHER_THREADS_MAX = 32
"""Threads for work that does not wait for the bucket."""

log = structlog.get_logger()


class S3Chats:
    """Chats with objects that are stored before their logs and deleted with them."""

    def __init__(self, chats: ChatLogs, blobs: S3Blobs) -> None:
        self._chats, self._blobs = chats, blobs
        self.append, self.load, self.load_durable = chats.append, chats.load, chats.load_durable
        self.export, self.import_log = chats.export, chats.import_log

    async def fork(self, chat_id: str, n: int, owner: Identity, target: str) -> None:
        await complete(self._fork(chat_id, n, owner, target))

    async def _fork(self, chat_id: str, n: int, owner: Identity, target: str) -> None:
        chat = await self._chats.load(chat_id)
        log_copy.check_copy(chat, n)
        await self._blobs.copy_all(chat_id, target, chat.info.owner.tenant)
        try:
            await self._chats.fork(chat_id, n, owner, target)
        except InvalidRequest:  # it is there, with these
            raise
        except HeadraceError:
            # They may include objects erased from the chat in the meantime.
            await self._blobs.delete_each(target, await self._blobs.list_ids(target))
            raise

    async def delete_together(self, chat_ids: Collection[str]) -> Collection[str]:
        for chat_id in chat_ids:
            if blob_ids := await self._blobs.list_objects(chat_id):
                await self._blobs.delete_each(chat_id, blob_ids)
        return await self._chats.delete_together(chat_ids)

    async def delete(self, chat_id: str) -> None:
        with suppress(KeyUnavailable, LogDamaged):  # for such a chat, deletion decides
            (await self._chats.load(chat_id)).check_delete()
        has_objects = await self._blobs.begin_deletion(chat_id)
        await self._chats.delete(chat_id)
        if has_objects:
            try:
                await self._blobs.finish_deletion(chat_id)
            except HeadraceError as error:  # the chat has gone, and they are noted
                log.warning("blobs of a deleted chat go later", chat_id=chat_id, problem=error.message)


@asynccontextmanager
async def keeping_blobs_in(
    url: str, settings: S3Settings, engine: Engine, limits: Limits = LIMITS
) -> AsyncGenerator[Engine]:
    """Return the engine with its blobs in the bucket at `url`. Raises CannotServe if the bucket refuses."""
    # The loop's own threads are a few for each core: those that wait for a bucket would hold all others' work up.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WAITING_MAX + OTHER_THREADS_MAX, "work"))
    async with open_bucket(url, settings, limits) as bucket:
        blobs = S3Blobs(bucket, engine.blobs, engine.index, engine.rewriting.keys)
        # Named, as the arguments of `replace` are of any type: they have all that an engine's parts have.
        chats: ChatLogs = S3Chats(engine.chats, blobs)
        rewriting = replace(engine.rewriting, sources=(*engine.rewriting.sources, blobs.list_pieces))
        stored: Blobs = blobs
        yield replace(engine, blobs=stored, chats=chats, rewriting=rewriting)
