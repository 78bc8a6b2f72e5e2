from __future__ import annotations

import asyncio
from contextlib import aclosing
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, InvalidRequest, NotFound
from headrace.v1 import memory_pb2
from services.memory.agents import AgentRpcs
from services.memory.audit import ContentReads, find_answers
from services.memory.chats.access import describe_access
from services.memory.chats.append import encode_lines
from services.memory.chats.rpcs import ChatRpcs
from services.memory.facts.rpcs import FactRpcs
from services.memory.gates.export import GateAuditRpcs
from services.memory.gates.rpcs import GateRpcs, GrantRpcs
from services.memory.keys.run_places import keeping_place
from services.memory.limits import LimitRpcs
from services.memory.log.chat import chat_not_found, get_first_n
from services.memory.log.chat_info import SCOPE_ALL
from services.memory.log.lines import Query, Revert
from services.memory.log.media import Blob
from services.memory.log.session_state import get_context_key, make_state_line
from services.memory.log.stamps import make_stamp
from services.memory.requests import chat_history, checkpoints, history_reader, pins
from services.memory.runs import LeaseRpcs, OperatorRpcs
from services.memory.spend import BudgetRpcs
from services.memory.storage import log_copy
from services.memory.storage.index_progress import describe_progress
from services.runtime.auth import identity
from services.runtime.auth.access import RUN_ONLY

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
    from services.runtime.rpc.interceptors import Context


class MemoryService(
    ChatRpcs, LeaseRpcs, GateRpcs, GrantRpcs, GateAuditRpcs, OperatorRpcs, BudgetRpcs, LimitRpcs, AgentRpcs, FactRpcs
):
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
        async with keeping_place(self._engine.key_uses, self._access, request, lines):
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
        # A copy, as the lines get their numbers in the log meanwhile.
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
        await asyncio.sleep(0)  # the append is first on its way to the disk
        chat_id = request.append.chat_id
        try:
            chat = await self._access.load_chat_or_empty(chat_id)
            state = chat.get_state(get_context_key(""))
            told = memory_pb2.GetStateResponse(version=state.version, state=state.json)
        except HeadraceError:
            return None, None
        if state.values or request.context.chat_id != chat_id:  # which it lacks where nothing is asked for
            return told, None
        try:
            return told, await self._load_context(chat, request.context, query)
        except HeadraceError:
            return told, None  # who asks again is told why

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
        return await asyncio.to_thread(history_reader.read_history, chat.copy_runs(), request, find)

    async def ReadResult(
        self, request: memory_pb2.ReadResultRequest, context: Context
    ) -> memory_pb2.ReadResultResponse:
        chat = await self._access.load_working_chat(request.chat_id)
        find = partial(self._engine.blobs.find, request.chat_id)
        return await asyncio.to_thread(history_reader.read_result, chat.copy_runs(), request, find)

    async def Compact(
        self, request: memory_pb2.CompactRequest, context: Context
    ) -> AsyncGenerator[memory_pb2.CompactDelta]:
        async with aclosing(self._compacting.compact(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def GetChat(self, request: memory_pb2.GetChatRequest, context: Context) -> memory_pb2.GetChatResponse:
        run_id = request.run_id or None
        if request.without_events:
            return await self._get_brief_chat(request, run_id)
        chat_id = await self._resolve_chat_id(request.chat_id, run_id)
        chat = await self._access.read_chat(chat_id)
        if not request.include_lines:  # which orchestrators read, for the run that goes on
            await self._reads.record(identity.require_identity(), chat.info.owner, chat_id)
        log = await self._engine.chats.export(chat) if request.include_raw_messages else None
        shown = chat_history.ChatHistory.from_chat(chat, run_id)
        # A long chat takes longer than others should wait.
        response = await asyncio.to_thread(
            shown.build_response, request.page_token, log, partial(self._engine.blobs.find, chat_id)
        )
        info = chat.info
        access = describe_access(info.owner, info.shared_with, info.participants)
        response.MergeFrom(memory_pb2.GetChatResponse(**access))
        if request.include_lines:
            if run_id is None:
                raise InvalidRequest.of("runId", "is required where lines are wanted")
            response.lines.extend(encode_lines(line for line in chat.log if line.run_id == run_id))
        return response

    async def _get_brief_chat(
        self, request: memory_pb2.GetChatRequest, run_id: str | None
    ) -> memory_pb2.GetChatResponse:
        """Return what the index has of a chat, and what was asked for of its log. Raises NotFound."""
        entry = None
        try:
            chat_id = await self._resolve_chat_id(request.chat_id, run_id)
            entry = await self._access.find_readable(chat_id)
        except NotFound:
            entry = await self._access.find_own_unfinished(run_id) if run_id is not None else None
            if entry is None or request.chat_id not in ("", entry.chat_id):
                raise
        access = describe_access(entry.owner, entry.shared_names, entry.participant_names)
        access["access"] = access["access"] or RUN_ONLY
        if request.shows_content:
            await self._reads.record(identity.require_identity(), entry.owner, entry.chat_id)
        response = memory_pb2.GetChatResponse(
            chat_id=entry.chat_id,
            chat_name=entry.name,
            title=entry.title,
            last_agent_key=entry.last_agent_key,
            **access,
        )
        if request.request_id and response.access != RUN_ONLY:
            info = (await self._access.read_chat(entry.chat_id)).info
            if (found := info.find_run_by_request(request.request_id)) is not None:
                response.request_run_id = found
        return response

    async def ListUnfinishedRuns(
        self, request: memory_pb2.ListUnfinishedRunsRequest, context: Context
    ) -> memory_pb2.ListUnfinishedRunsResponse:
        chat_id = await self._access.find_chat_of_run(request.run_id) if request.run_id else None
        if request.run_id and chat_id is None:
            return memory_pb2.ListUnfinishedRunsResponse()
        progress = None if chat_id else self._engine.index.get_progress()
        runs = [
            memory_pb2.UnfinishedRun(
                run_id=run.run_id,
                chat_id=run.chat_id,
                agent_key=run.agent_key,
                generation=run.generation,
                last_seq=run.last_seq,
                owner=run.owner,
                lease_expires_at=run.expires_at,
                tenant=run.tenant,
                user=run.user,
                chat_owner=run.chat_owner,
            )
            for run in await self._engine.index.list_unfinished(chat_id, without_owner=request.without_owner)
        ]
        return memory_pb2.ListUnfinishedRunsResponse(runs=runs, index_progress=describe_progress(progress))

    async def ForkChat(self, request: memory_pb2.ForkChatRequest, context: Context) -> memory_pb2.ForkChatResponse:
        who, chats = identity.require_identity(), self._engine.chats
        target = log_copy.name_copy(who, request)
        if request.request_id and await log_copy.has_copy(chats, target):
            return memory_pb2.ForkChatResponse(chat_id=target)
        chat = await self._access.load_copied_chat(request.chat_id)
        n = request.seq if request.HasField("seq") else len(chat.log)
        if request.HasField("run_id"):
            n = min(n, log_copy.find_last_n(chat, request.run_id))
        await log_copy.fork_chat(chats, request.chat_id, n, who, target)
        return memory_pb2.ForkChatResponse(chat_id=target)

    async def ListCheckpoints(
        self, request: memory_pb2.ListCheckpointsRequest, context: Context
    ) -> memory_pb2.ListCheckpointsResponse:
        return checkpoints.list_checkpoints(await self._access.load_chat(request.chat_id), request)

    async def Revert(self, request: memory_pb2.RevertRequest, context: Context) -> memory_pb2.RevertResponse:
        # A run takes others back by itself; of no run it is the owner's.
        load = self._access.load_working_chat if request.run_id else self._access.load_chat
        chat = await load(request.chat_id)
        stamped = make_stamp(request.chat_id, request.run_id, request.generation, request_id=request.request_id)
        if stamped["uuid"] not in chat.appends:
            checkpoints.check_position(chat, request)
        line = Revert(
            **stamped,
            to_checkpoint_id=request.checkpoint_id,
            scope=request.scope or SCOPE_ALL,
        )
        _, answer = await self._engine.chats.append(request.chat_id, [line], request.ByteSize())
        return memory_pb2.RevertResponse(n=get_first_n(answer))

    async def PinMessage(
        self, request: memory_pb2.PinMessageRequest, context: Context
    ) -> memory_pb2.PinMessageResponse:
        chat = await self._access.load_changed_chat(
            request.chat_id, request.request_id, lambda chat: pins.is_as_asked(chat, request)
        )
        if request.request_id in chat.appends:
            return memory_pb2.PinMessageResponse(n=chat.appends[request.request_id].first_n)
        line = pins.make_pin_line(chat, request)
        return memory_pb2.PinMessageResponse(n=0 if line is None else await self._append_line(line, request))

    async def ListPins(self, request: memory_pb2.ListPinsRequest, context: Context) -> memory_pb2.ListPinsResponse:
        return pins.list_pinned(await self._access.load_chat(request.chat_id))

    async def GetSummary(
        self, request: memory_pb2.GetSummaryRequest, context: Context
    ) -> memory_pb2.GetSummaryResponse:
        return pins.get_summary(await self._access.load_chat(request.chat_id))

    async def EditSummary(
        self, request: memory_pb2.EditSummaryRequest, context: Context
    ) -> memory_pb2.EditSummaryResponse:
        chat = await self._access.load_changed_chat(request.chat_id, request.request_id)
        if request.request_id in chat.appends:
            return memory_pb2.EditSummaryResponse(n=chat.appends[request.request_id].first_n)
        line = pins.make_edit_line(chat, request)
        return memory_pb2.EditSummaryResponse(n=await self._append_line(line, request))

    async def GetState(self, request: memory_pb2.GetStateRequest, context: Context) -> memory_pb2.GetStateResponse:
        state = (await self._access.load_working_chat(request.chat_id)).get_state(get_context_key(request.context_id))
        return memory_pb2.GetStateResponse(version=state.version, state=state.json)

    async def UpdateState(
        self, request: memory_pb2.UpdateStateRequest, context: Context
    ) -> memory_pb2.UpdateStateResponse:
        chat = await self._access.load_working_chat(request.chat_id)
        stamped = make_stamp(request.chat_id, request.run_id, request.generation)
        line = make_state_line(stamped, chat.get_state(get_context_key(request.context_id)), request)
        await self._engine.chats.append(request.chat_id, [line], request.ByteSize())
        return memory_pb2.UpdateStateResponse(version=line.version)

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

    async def _resolve_chat_id(self, chat_id: str, run_id: str | None) -> str:
        if run_id is None:
            if not chat_id:
                raise InvalidRequest.of("chatId", "is required where no runId is given")
            return chat_id
        found = await self._access.find_readable_chat_of_run(run_id)
        if found is None or chat_id not in ("", found):
            raise NotFound(f"run {run_id} does not exist" + (f" in chat {chat_id}" if chat_id else ""), runId=run_id)
        return found
