"""The RPCs of chats: lists, search, one chat with its history, its title and sharing, copies and deletion."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest, NotFound, OutOfRange
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.chats.access import describe_access, parse_shares
from services.memory.chats.append import encode_lines
from services.memory.chats.edits import append_line
from services.memory.chats.history import ChatHistory, list_events, list_items
from services.memory.data.holds import check_deletion
from services.memory.log.chat_info import clean_title
from services.memory.log.lines import Sharing, Title, make_stamp
from services.memory.storage import log_copy
from services.memory.storage.index_rows import describe_progress
from services.memory.storage.paging import Page, read_page
from services.memory.storage.search import Question
from services.runtime.auth import identity
from services.runtime.auth.access import RUN_ONLY
from services.runtime.formats.chat_cursor import ChatCursor
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from services.memory.audit import ContentReads
    from services.memory.chats.access import ChatAccess
    from services.memory.facts.rpcs import FactStore
    from services.memory.log.chat import Chat
    from services.memory.storage.engine import Engine
    from services.runtime.rpc.interceptors import Context


class ChatRpcs(MemoryServiceServicer):
    """RPCs of the memory service that show chats and change data outside their runs."""

    _engine: Engine
    _access: ChatAccess
    _facts: FactStore
    _reads: ContentReads

    async def ListChats(self, request: memory_pb2.ListChatsRequest, context: Context) -> memory_pb2.ListChatsResponse:
        caller, page = identity.require_identity(), Page.parse(request.page_size, request.page_token)
        list_chats = partial(self._engine.index.list_page, caller, is_shared=request.scope == "shared")
        progress = self._engine.index.get_progress()
        entries, next_page_token = await read_page(list_chats, page)
        chats = [
            memory_pb2.Chat(
                chat_id=entry.chat_id,
                chat_name=entry.name,
                title=entry.title,
                first_agent_key=entry.first_agent_key,
                created_at=entry.created_at,
                updated_at=entry.updated_at,
                **describe_access(entry.owner, entry.shared_names, entry.participant_names),
            )
            for entry in entries
        ]
        return memory_pb2.ListChatsResponse(
            chats=chats, next_page_token=next_page_token, index_progress=describe_progress(progress)
        )

    async def GetChat(self, request: memory_pb2.GetChatRequest, context: Context) -> memory_pb2.GetChatResponse:
        run_id = request.run_id or None
        if request.without_events:
            return await self._get_brief_chat(request, run_id)
        chat_id = await self._resolve_chat_id(request.chat_id, run_id)
        chat = await self._access.read_chat(chat_id)
        reader, run = identity.require_identity(), chat.info.runs.get(run_id or "")
        # Orchestrators read the lines of a run for its user.
        is_own = request.include_lines and run is not None and run.user == reader.user and not reader.makers
        if not is_own:
            await self._reads.record(reader, chat.info.owner, chat_id)
        log = await self._engine.chats.export(chat) if request.include_raw_messages else None
        shown = ChatHistory.from_chat(chat, run_id)
        # A long chat takes longer than others should wait.
        response = await asyncio.to_thread(
            shown.build_response, request.page_token, log, partial(self._engine.blobs.find, chat_id)
        )
        info = chat.info
        access = describe_access(info.owner, info.shared_with, info.participants)
        response.MergeFrom(memory_pb2.GetChatResponse(**access))
        if run_id is None and not request.page_token and response.events:
            response.cursor = str(ChatCursor(shown.runs[-1][0].n, response.events[-1].seq))
        if request.include_lines:
            if run_id is None:
                raise InvalidRequest.of("runId", "is required where lines are wanted")
            response.lines.extend(encode_lines(line for line in chat.log if line.run_id == run_id))
        return response

    async def WatchChat(
        self, request: memory_pb2.WatchChatRequest, context: Context
    ) -> AsyncGenerator[memory_pb2.WatchChatResponse]:
        from_n = request.from_n
        with self._engine.chat_watch.reading(request.chat_id) as reader:
            while not reader.is_closed:
                chat = await self._access.read_chat(request.chat_id)
                if from_n > chat.info.last_n + 1:
                    raise OutOfRange(f"line {from_n} is beyond the chat's last line, {chat.info.last_n}")
                for lines in list_items(chat, from_n):
                    first = lines[0]
                    item: dict[str, Any] = (
                        {"run_id": first.run_id} if first.run_id else {"event": list_events(lines)[0]}
                    )
                    yield memory_pb2.WatchChatResponse(n=first.n, **item)
                    from_n = first.n + 1
                await reader.wait()

    async def _get_brief_chat(
        self, request: memory_pb2.GetChatRequest, run_id: str | None
    ) -> memory_pb2.GetChatResponse:
        """Return the chat's data in the index, and the requested facts of its log. Raises NotFound."""
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
            user = identity.require_identity().user
            if (found := info.find_run_by_request(request.request_id, user)) is not None:
                response.request_run_id = found
        return response

    async def _resolve_chat_id(self, chat_id: str, run_id: str | None) -> str:
        if run_id is None:
            if not chat_id:
                raise InvalidRequest.of("chatId", "is required where no runId is given")
            return chat_id
        found = await self._access.find_readable_chat_of_run(run_id)
        if found is None or chat_id not in ("", found):
            raise NotFound(f"run {run_id} does not exist" + (f" in chat {chat_id}" if chat_id else ""), runId=run_id)
        return found

    async def UpdateChat(
        self, request: memory_pb2.UpdateChatRequest, context: Context
    ) -> memory_pb2.UpdateChatResponse:
        title = clean_title(request.title)

        def has_title(chat: Chat) -> bool:
            current = chat.info.given_title
            return title == (current or "") or (request.if_untitled and current is not None)

        chat = await self._access.load_changed_chat(request.chat_id, request.request_id, has_title)
        if request.request_id in chat.appends:
            n = chat.appends[request.request_id].first_n
            return memory_pb2.UpdateChatResponse(n=n, title=chat.info.title)
        if has_title(chat):
            return memory_pb2.UpdateChatResponse(title=chat.info.title)
        stamp = make_stamp(request.chat_id, request_id=request.request_id)
        n = await append_line(self._engine, Title(**stamp, text=title, if_untitled=request.if_untitled), request)
        if n == 0:  # another title came first
            return memory_pb2.UpdateChatResponse(title=(await self._access.load_chat(request.chat_id)).info.title)
        return memory_pb2.UpdateChatResponse(n=n, title=title or chat.info.name)

    async def ShareChat(self, request: memory_pb2.ShareChatRequest, context: Context) -> memory_pb2.ShareChatResponse:
        readers, participants = parse_shares(request)

        def is_shared(chat: Chat) -> bool:
            return (readers, participants) == ([*chat.info.shared_with], [*chat.info.participants])

        chat = await self._access.load_changed_chat(request.chat_id, request.request_id, is_shared)
        info = chat.info
        if request.request_id in chat.appends:
            n = chat.appends[request.request_id].first_n
            return memory_pb2.ShareChatResponse(n=n, shared_with=info.shared_with, participants=info.participants)
        n = 0
        if not is_shared(chat):
            stamp = make_stamp(request.chat_id, request_id=request.request_id)
            line = Sharing(**stamp, shared_with=readers, participants=participants)
            n = await append_line(self._engine, line, request)
            details = {"sharedWith": " ".join(readers), "participants": " ".join(participants)}
            who = identity.require_identity()
            await self._engine.audit.record("chat.shared", who, chatId=request.chat_id, **details)
        return memory_pb2.ShareChatResponse(n=n, shared_with=readers, participants=participants)

    async def ForkChat(self, request: memory_pb2.ForkChatRequest, context: Context) -> memory_pb2.ForkChatResponse:
        who, chats = identity.require_identity(), self._engine.chats
        target = log_copy.name_copy(who, request)
        if request.request_id and await log_copy.has_copy(chats, target):
            return memory_pb2.ForkChatResponse(chat_id=target)
        chat = await self._access.load_copied_chat(request.chat_id)
        await self._reads.record(who, chat.info.owner, request.chat_id)
        n = request.seq if request.HasField("seq") else len(chat.log)
        if request.HasField("run_id"):
            n = min(n, log_copy.find_last_n(chat, request.run_id))
        await log_copy.fork_chat(chats, request.chat_id, n, who, target)
        return memory_pb2.ForkChatResponse(chat_id=target)

    async def DeleteChat(
        self, request: memory_pb2.DeleteChatRequest, context: Context
    ) -> memory_pb2.DeleteChatResponse:
        entry = await self._access.find_own_row(request.chat_id)
        await check_deletion(self._engine, entry.owner, request.chat_id)
        await self._engine.chats.delete(request.chat_id)
        await self._engine.audit.record("chat.deleted", identity.require_identity(), chatId=request.chat_id)
        return memory_pb2.DeleteChatResponse()

    async def Search(self, request: memory_pb2.SearchRequest, context: Context) -> memory_pb2.SearchResponse:
        question = Question.parse(request.query, request.scope, request.limit)
        progress = self._engine.index.get_progress()
        caller = identity.require_identity()
        hits = await self._engine.index.search(caller, question)
        # these chats are the caller's own, but another user may have made the caller's key
        for chat_id in {hit.chat_id for hit in hits}:
            await self._reads.record(caller, caller, chat_id)
        if question.has_facts:
            hits = await self._facts.add_hits(request.query, question, hits)
        return memory_pb2.SearchResponse(
            hits=[copy_fields(hit, memory_pb2.SearchHit) for hit in hits],
            index_progress=describe_progress(progress),
        )
