"""The RPCs of chats as their owners see them in a list: what there is, what it is called, what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.log.chat import get_first_n
from services.memory.log.lines import Title
from services.memory.log.stamps import make_stamp
from services.memory.log.titles import clean_title
from services.memory.storage.paging import Page
from services.memory.storage.search import Question
from services.runtime.auth import identity

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from services.memory.access.chat_access import ChatAccess
    from services.memory.facts.store import FactStore
    from services.memory.log.lines import Known
    from services.memory.storage.engine import Engine

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class ChatRpcs(MemoryServiceServicer):
    """The part of the memory service for lists of chats."""

    _engine: Engine
    _access: ChatAccess
    _facts: FactStore

    async def ListChats(self, request: memory_pb2.ListChatsRequest, context: Context) -> memory_pb2.ListChatsResponse:
        page, next_page_token = await self._engine.index.list_page(
            identity.require_identity(), Page.parse(request.page_size, request.page_token)
        )
        chats = [
            memory_pb2.Chat(
                chat_id=entry.chat_id,
                chat_name=entry.name,
                title=entry.title,
                first_agent_key=entry.first_agent_key,
                created_at=entry.created_at,
                updated_at=entry.updated_at,
            )
            for entry in page
        ]
        return memory_pb2.ListChatsResponse(chats=chats, next_page_token=next_page_token)

    async def UpdateChat(
        self, request: memory_pb2.UpdateChatRequest, context: Context
    ) -> memory_pb2.UpdateChatResponse:
        chat = await self._access.load_chat(request.chat_id)
        if request.request_id in chat.appends:
            n = chat.appends[request.request_id].first_n
            return memory_pb2.UpdateChatResponse(n=n, title=chat.info.title)
        title = clean_title(request.title)
        current = chat.info.given_title
        if title == (current or "") or (request.if_untitled and current is not None):
            return memory_pb2.UpdateChatResponse(title=chat.info.title)
        line = Title(**make_stamp(request.chat_id, request_id=request.request_id), text=title)
        n = await self._append_line(line, request)
        return memory_pb2.UpdateChatResponse(n=n, title=title or chat.info.first_words)

    async def DeleteChat(
        self, request: memory_pb2.DeleteChatRequest, context: Context
    ) -> memory_pb2.DeleteChatResponse:
        await self._access.find_entry(request.chat_id)
        await self._engine.chats.delete(request.chat_id)
        return memory_pb2.DeleteChatResponse()

    async def Search(self, request: memory_pb2.SearchRequest, context: Context) -> memory_pb2.SearchResponse:
        question = Question.parse(request.query, request.scope, request.limit)
        hits = await self._engine.index.search(identity.require_identity(), question)
        if question.has_facts:
            hits = await self._facts.add_hits(request.query, question, hits)
        return memory_pb2.SearchResponse(
            hits=[
                memory_pb2.SearchHit(
                    chat_id=hit.chat_id, title=hit.title, run_id=hit.run_id, excerpt=hit.excerpt, score=hit.score
                )
                for hit in hits
            ]
        )

    async def _append_line(self, line: Known, request: Message) -> int:
        _, answer = await self._engine.chats.append(line.chat_id, [line], request.ByteSize())
        return get_first_n(answer)
