"""MemoryService: appends, and the data that runs load from a chat; the other RPCs are in their own modules."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, NotFound, Overloaded, QuotaExceeded
from headrace.v1 import memory_pb2
from services.memory.agents import AgentRpcs
from services.memory.audit import ContentReads, find_answers
from services.memory.chats.edits import EditRpcs
from services.memory.chats.rpcs import ChatRpcs
from services.memory.context.history_reader import read_history, read_result
from services.memory.facts.rpcs import FactRpcs
from services.memory.gates.export import GateExportRpcs
from services.memory.gates.rpcs import GateRpcs
from services.memory.limits import LimitRpcs
from services.memory.log.chat import chat_not_found
from services.memory.log.lines import Query
from services.memory.log.media import Blob
from services.memory.log.views import get_context_key
from services.memory.runs import RunRpcs
from services.memory.spend import BudgetRpcs
from services.runtime.auth import identity
from services.runtime.capacity import RETRY_AFTER_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from services.memory.chats.access import ChatAccess
    from services.memory.chats.append import AppendDecoder
    from services.memory.compaction.compactor import Compactor
    from services.memory.context.loading import ContextLoader
    from services.memory.data.erasures import Refusals
    from services.memory.facts.rpcs import FactStore
    from services.memory.log.chat import Chat
    from services.memory.log.lines import Known
    from services.memory.storage.engine import Engine
    from services.memory.storage.key_uses import KeyUses
    from services.runtime.rpc.interceptors import Context


class MemoryService(ChatRpcs, EditRpcs, RunRpcs, GateRpcs, GateExportRpcs, BudgetRpcs, LimitRpcs, AgentRpcs, FactRpcs):
    """Serves the chats of one store; `access` limits callers to their own."""

    def __init__(
        self,
        engine: Engine,
        access: ChatAccess,
        decoder: AppendDecoder,
        loading: ContextLoader,
        compacting: Compactor,
        facts: FactStore,
        refusals: Refusals,
    ) -> None:
        self._engine = engine
        self._access = access
        self._decoder = decoder
        self._loading = loading
        self._compacting = compacting
        self._facts = facts
        self._refusals = refusals
        self._reads = ContentReads(engine.audit)

    async def Append(self, request: memory_pb2.AppendRequest, context: Context) -> memory_pb2.AppendResponse:
        return await self._append(request, *await self._decoder.decode_append(request))

    async def _append(
        self, request: memory_pb2.AppendRequest, lines: list[Known], blobs: list[Blob]
    ) -> memory_pb2.AppendResponse:
        if isinstance(lines[0], Query) and (who := identity.get_identity()) is not None:
            self._refusals.check(who)
        if not request.key_runs_max:
            return await self._append_lines(request, lines, blobs)
        async with _keeping_place(self._engine.key_uses, self._access, request, lines):
            return await self._append_lines(request, lines, blobs)

    async def _append_lines(
        self, request: memory_pb2.AppendRequest, lines: list[Known], blobs: list[Blob]
    ) -> memory_pb2.AppendResponse:
        if blobs:
            await self._put_blobs(request.chat_id, blobs)
        lease = self._engine.leases.create_first(request.owner, request.ttl_ms) if request.owner else None
        beside = frozenset(request.beside) if lease else None
        chat, answer = await self._engine.chats.append(request.chat_id, lines, request.ByteSize(), lease, beside)
        if isinstance(answer, str):
            return memory_pb2.AppendResponse(chat_name=chat.info.name, duplicate_run_id=answer)
        for answered in find_answers(lines):
            await self._engine.audit.record_of(chat.info.owner.tenant, "gate.answered", **answered)
        return memory_pb2.AppendResponse(
            first_n=answer.first_n,
            last_n=answer.last_n,
            chat_created=answer.first_n == 1,
            chat_name=chat.info.name,
            checkpoint_id=answer.checkpoint,
            chat_owner=chat.info.owner.user,
        )

    async def BeginRun(self, request: memory_pb2.BeginRunRequest, context: Context) -> memory_pb2.BeginRunResponse:
        lines, blobs = await self._decoder.decode_append(request.append)
        # A copy, because the lines get their numbers in the log in the meantime.
        query = copy(lines[0]) if isinstance(lines[0], Query) else None
        preparing = asyncio.create_task(self._prepare_first_turn(request, query))
        try:
            appended = await self._append(request.append, lines, blobs)
            if appended.HasField("duplicate_run_id"):
                return memory_pb2.BeginRunResponse(append=appended)
            state, loaded = await preparing
        finally:
            preparing.cancel()
        return memory_pb2.BeginRunResponse(append=appended, state=state, context=loaded)

    async def _prepare_first_turn(
        self, request: memory_pb2.BeginRunRequest, query: Query | None
    ) -> tuple[memory_pb2.GetStateResponse | None, memory_pb2.LoadContextResponse | None]:
        await asyncio.sleep(0)  # lets the append reach the disk first
        chat_id = request.append.chat_id
        try:
            chat = await self._access.load_chat_or_empty(chat_id)
            state = chat.get_state(get_context_key(""))
            response = memory_pb2.GetStateResponse(version=state.version, state=state.json)
        except HeadraceError:
            return None, None
        if state.values or request.context.chat_id != chat_id:  # which it lacks where nothing is asked for
            return response, None
        try:
            return response, await self._load_context(chat, request.context, query)
        except HeadraceError:
            return response, None  # a second request gets the reason

    async def LoadContext(
        self, request: memory_pb2.LoadContextRequest, context: Context
    ) -> memory_pb2.LoadContextResponse:
        is_pending = request.HasField("pending_query")
        chat = await (self._access.load_chat_or_empty if is_pending else self._access.load_working_chat)(
            request.chat_id
        )
        pending = await self._decoder.decode_pending(request) if is_pending else None
        return await self._load_context(chat, request, pending)

    async def _load_context(
        self, chat: Chat, request: memory_pb2.LoadContextRequest, pending: Known | None
    ) -> memory_pb2.LoadContextResponse:
        find = partial(self._engine.blobs.find, request.chat_id)
        return await self._loading.load_context(chat, request, pending, find)

    async def ReadHistory(
        self, request: memory_pb2.ReadHistoryRequest, context: Context
    ) -> memory_pb2.ReadHistoryResponse:
        chat = await self._access.load_working_chat(request.chat_id)
        # A long chat takes longer than others should wait.
        find = partial(self._engine.blobs.find, request.chat_id)
        return await asyncio.to_thread(read_history, chat.copy_runs(), request, find)

    async def ReadResult(
        self, request: memory_pb2.ReadResultRequest, context: Context
    ) -> memory_pb2.ReadResultResponse:
        chat = await self._access.load_working_chat(request.chat_id)
        find = partial(self._engine.blobs.find, request.chat_id)
        return await asyncio.to_thread(read_result, chat.copy_runs(), request, find)

    async def Compact(
        self, request: memory_pb2.CompactRequest, context: Context
    ) -> AsyncGenerator[memory_pb2.CompactDelta]:
        async with aclosing(self._compacting.compact(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def PutBlob(self, request: memory_pb2.PutBlobRequest, context: Context) -> memory_pb2.PutBlobResponse:
        blob = Blob.create(request.mime_type, request.data)
        await self._put_blobs(request.chat_id, [blob])
        return memory_pb2.PutBlobResponse(blob_id=blob.id)

    async def GetBlob(self, request: memory_pb2.GetBlobRequest, context: Context) -> memory_pb2.GetBlobResponse:
        blob = None
        if await self._access.may_read_blobs(request.chat_id):
            blob = await self._engine.blobs.load(request.chat_id, request.blob_id)
        if blob is None:
            raise NotFound(f"chat {request.chat_id} has no such blob", chatId=request.chat_id)
        return memory_pb2.GetBlobResponse(mime_type=blob.mime_type, data=blob.data)

    async def _put_blobs(self, chat_id: str, blobs: list[Blob]) -> None:
        if not await self._access.may_use_id(chat_id):
            raise chat_not_found(chat_id)
        tenant = identity.Identity.from_stored(identity.current_tenant(), "").tenant
        await self._engine.blobs.put_all(chat_id, tenant, blobs)


@asynccontextmanager
async def _keeping_place(
    uses: KeyUses, access: ChatAccess, request: memory_pb2.AppendRequest, lines: list[Known]
) -> AsyncGenerator[None]:
    """Reserve one of the key's runs for the new run, if the caller's key has a limit. Raises QuotaExceeded."""
    who, most = identity.get_identity(), request.key_runs_max
    if not (isinstance(lines[0], Query) and who is not None and who.credential):
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
