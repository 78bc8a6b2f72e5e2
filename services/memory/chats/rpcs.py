"""The RPCs of chats as their owners see them in a list: what there is, what it is called, what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.chats.access import describe_access, parse_shares
from services.memory.data.holds import check_deletion
from services.memory.log.chat import get_first_n
from services.memory.log.chat_info import clean_title
from services.memory.log.lines import Sharing, Title
from services.memory.log.stamps import make_stamp
from services.memory.storage.index_progress import describe_progress
from services.memory.storage.paging import Page
from services.memory.storage.search import Question
from services.runtime.auth import identity

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from services.memory.audit import ContentReads
    from services.memory.chats.access import ChatAccess
    from services.memory.facts.rpcs import FactStore
    from services.memory.log.chat import Chat
    from services.memory.log.lines import Known
    from services.memory.storage.engine import Engine
    from services.runtime.rpc.interceptors import Context


class ChatRpcs(MemoryServiceServicer):
    """The part of the memory service for lists of chats."""

    _engine: Engine
    _access: ChatAccess
    _facts: FactStore
    _reads: ContentReads

    async def ListChats(self, request: memory_pb2.ListChatsRequest, context: Context) -> memory_pb2.ListChatsResponse:
        caller, page = identity.require_identity(), Page.parse(request.page_size, request.page_token)
        index = self._engine.index
        list_chats = index.list_shared if request.scope == "shared" else index.list_page
        progress = index.get_progress()
        entries, next_page_token = await list_chats(caller, page)
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
        n = await self._append_line(Title(**stamp, text=title, if_untitled=request.if_untitled), request)
        if n == 0:  # another title came first
            return memory_pb2.UpdateChatResponse(title=(await self._access.load_chat(request.chat_id)).info.title)
        return memory_pb2.UpdateChatResponse(n=n, title=title or chat.info.first_words)

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
            n = await self._append_line(Sharing(**stamp, shared_with=readers, participants=participants), request)
            told = {"sharedWith": " ".join(readers), "participants": " ".join(participants)}
            who = identity.require_identity()
            await self._engine.audit.record("chat.shared", who, chatId=request.chat_id, **told)
        return memory_pb2.ShareChatResponse(n=n, shared_with=readers, participants=participants)

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
        for chat_id in {hit.chat_id for hit in hits}:  # all are the caller's own, whose key another may have made
            await self._reads.record(caller, caller, chat_id)
        if question.has_facts:
            hits = await self._facts.add_hits(request.query, question, hits)
        return memory_pb2.SearchResponse(
            hits=[
                memory_pb2.SearchHit(
                    chat_id=hit.chat_id, title=hit.title, run_id=hit.run_id, excerpt=hit.excerpt, score=hit.score
                )
                for hit in hits
            ],
            index_progress=describe_progress(progress),
        )

    async def _append_line(self, line: Known, request: Message) -> int:
        _, answer = await self._engine.chats.append(line.chat_id, [line], request.ByteSize())
        return get_first_n(answer)
