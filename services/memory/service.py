"""The RPCs of MemoryService. What a later version adds (compaction, checkpoints, state, search) is UNIMPLEMENTED."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory import context as views
from services.memory import history
from services.memory.drafts import drafted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.memory.chat import Chat
    from services.memory.lines import Line
    from services.memory.store import Store

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class MemoryService(MemoryServiceServicer):
    """Serves the chats of one store."""

    def __init__(self, store: Store, window: views.Window, action_tools: frozenset[str]) -> None:
        self._store = store
        self._window = window
        self._action_tools = action_tools

    async def Append(self, request: memory_pb2.AppendRequest, context: Context) -> memory_pb2.AppendResponse:
        lines = drafted(request, self._action_tools)
        chat, answer = await self._store.append(request.chat_id, lines, request.ByteSize())
        if isinstance(answer, str):
            return memory_pb2.AppendResponse(chat_name=chat.facts.name, duplicate_run_id=answer)
        return memory_pb2.AppendResponse(
            first_n=answer.first_n,
            last_n=answer.last_n,
            chat_created=answer.first_n == 1,
            chat_name=chat.facts.name,
        )

    async def LoadContext(
        self, request: memory_pb2.LoadContextRequest, context: Context
    ) -> memory_pb2.LoadContextResponse:
        chat = await self._store.chat(request.chat_id)
        window = self._window.asked(request.message_history_max)
        return memory_pb2.LoadContextResponse(messages=views.view(chat.runs, request, window))

    async def ListChats(self, request: memory_pb2.ListChatsRequest, context: Context) -> memory_pb2.ListChatsResponse:
        page, next_page_token = self._store.index.page(request.page_size, request.page_token)
        chats = [
            memory_pb2.Chat(
                chat_id=facts.chat_id,
                chat_name=facts.name,
                first_agent_key=facts.first_agent_key,
                created_at=facts.created_at,
                updated_at=facts.updated_at,
            )
            for facts in page
        ]
        return memory_pb2.ListChatsResponse(chats=chats, next_page_token=next_page_token)

    async def GetChat(self, request: memory_pb2.GetChatRequest, context: Context) -> memory_pb2.GetChatResponse:
        run_id = request.run_id or None
        chat_id = self._chat_id(request.chat_id, run_id)
        if request.without_events:
            facts = self._store.facts(chat_id)
            return memory_pb2.GetChatResponse(
                chat_id=chat_id, chat_name=facts.name, last_agent_key=facts.last_agent_key
            )
        chat = await self._store.chat(chat_id)
        runs = [list(lines) for key, lines in chat.runs.items() if run_id in (None, key)]
        log = await self._store.read(chat) if request.include_raw_messages else None
        # A long chat takes longer than others should wait.
        return await asyncio.to_thread(_history, chat, runs, log, run_id)

    async def DeleteChat(
        self, request: memory_pb2.DeleteChatRequest, context: Context
    ) -> memory_pb2.DeleteChatResponse:
        await self._store.delete(request.chat_id)
        return memory_pb2.DeleteChatResponse()

    async def ListUnfinishedRuns(
        self, request: memory_pb2.ListUnfinishedRunsRequest, context: Context
    ) -> memory_pb2.ListUnfinishedRunsResponse:
        runs = [
            memory_pb2.UnfinishedRun(
                run_id=run.run_id,
                chat_id=chat.chat_id,
                agent_key=run.agent_key,
                generation=run.generation,
                last_seq=run.last_seq,
            )
            for chat, run in self._store.index.unfinished()
        ]
        return memory_pb2.ListUnfinishedRunsResponse(runs=runs)

    def _chat_id(self, chat_id: str, run_id: str | None) -> str:
        """The chat that is asked for, by itself or by one of its runs."""
        if run_id is None:
            if not chat_id:
                raise InvalidRequest.of("chatId", "is required where no runId is given")
            return chat_id
        found = self._store.index.chat_of(run_id)
        if found is None or chat_id not in ("", found):
            raise NotFound(f"run {run_id} does not exist" + (f" in chat {chat_id}" if chat_id else ""), runId=run_id)
        return found


def _history(
    chat: Chat, runs: Sequence[Sequence[Line]], log: bytes | None, run_id: str | None
) -> memory_pb2.GetChatResponse:
    return memory_pb2.GetChatResponse(
        chat_id=chat.chat_id,
        chat_name=chat.facts.name,
        events=[event for lines in runs for event in history.events(lines)],
        references=history.references(line for lines in runs for line in lines),
        raw_messages=None if log is None else history.raw_messages(log, run_id),
    )
