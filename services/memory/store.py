"""The chats of one folder: opened when they are needed, kept while they are in use, written by one task."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import structlog

from headrace.errors import NotFound
from services.memory import recovery
from services.memory.chat import Chat, Span
from services.memory.commits import Commits
from services.memory.disk import Disk, disk_errors
from services.memory.facts import ChatFacts
from services.memory.index import Index

if TYPE_CHECKING:
    from services.memory.lines import Known

HOT_BYTES_MAX = 32 * 1024 * 1024
"""Length of the logs whose lines are kept; parsed they take about three times as much."""

HOT_CHAT_COST_BYTES = 16 * 1024
"""Counted for a chat beside its log, so that many small ones are bounded too."""

log = structlog.get_logger()


class Store:
    """All chats of a folder. Touched on the event loop only; the disk is reached in threads."""

    def __init__(self, disk: Disk, index: Index, commits: Commits, hot_bytes_max: int = HOT_BYTES_MAX) -> None:
        self.index = index
        self._disk = disk
        self._commits = commits
        self._hot_bytes_max = hot_bytes_max
        self._open: WeakValueDictionary[str, Chat] = WeakValueDictionary()
        """Whoever holds a chat keeps it here: there are never two objects of one chat."""
        self._hot: OrderedDict[str, tuple[Chat, int]] = OrderedDict()
        """Held by nobody else perhaps, the last used at the end, with what was counted for it."""
        self._hot_bytes = 0
        self._loading = asyncio.Lock()
        """One log is read at a time: the disk is one, and no chat is read twice."""

    def facts(self, chat_id: str) -> ChatFacts:
        """What is known of the chat without its log.

        Raises:
            NotFound: There is none.
        """
        facts = self.index.get(chat_id)
        if facts is None:
            raise NotFound(f"chat {chat_id} does not exist", chatId=chat_id)
        return facts

    async def chat(self, chat_id: str) -> Chat:
        """The chat, from its log when it was not in use.

        Raises:
            NotFound: There is none.
        """
        self.facts(chat_id)
        chat = self._open.get(chat_id)
        if chat is None:
            async with self._loading:
                self.facts(chat_id)  # it may have been deleted meanwhile
                chat = self._open.get(chat_id) or await asyncio.to_thread(_loaded, self._disk, chat_id)
                self._open[chat_id] = chat
        self._keep(chat)
        return chat

    async def append(self, chat_id: str, lines: list[Known], size_bytes: int) -> tuple[Chat, Span | str]:
        """Commit `lines`; a new chat is made by its query line. See Commits.append."""
        if self.index.get(chat_id):
            chat = await self.chat(chat_id)
        else:
            chat = self._open.setdefault(chat_id, Chat(chat_id, ChatFacts(chat_id)))
        answer = await self._commits.append(chat, lines, size_bytes)
        self._keep(chat)
        return chat, answer

    async def delete(self, chat_id: str) -> None:
        """Delete the chat. See Commits.delete."""
        await self._commits.delete(await self.chat(chat_id))
        self._let_go(chat_id)
        self._open.pop(chat_id, None)

    async def read(self, chat: Chat) -> bytes:
        """The chat's log, as far as it is acknowledged."""
        size_bytes = chat.size_bytes
        with disk_errors(chat.chat_id):
            return (await asyncio.to_thread(self._disk.read, chat.chat_id))[:size_bytes]

    def _keep(self, chat: Chat) -> None:
        """Keep the chat in memory as one of the last used."""
        if chat.is_deleted:
            return
        self._let_go(chat.chat_id)
        cost_bytes = HOT_CHAT_COST_BYTES + chat.size_bytes
        self._hot[chat.chat_id] = (chat, cost_bytes)
        self._hot_bytes += cost_bytes
        while self._hot_bytes > self._hot_bytes_max and len(self._hot) > 1:
            self._let_go(next(iter(self._hot)))

    def _let_go(self, chat_id: str) -> None:
        _, cost_bytes = self._hot.pop(chat_id, (None, 0))
        self._hot_bytes -= cost_bytes


@asynccontextmanager
async def opened(disk: Disk, *, hot_bytes_max: int = HOT_BYTES_MAX) -> AsyncGenerator[Store]:
    """The chats of `disk`, and their writer's task; leaving the block commits what waits."""
    index = Index()
    for facts in await asyncio.to_thread(_scanned, disk):
        index.put(facts)
    commits = Commits(disk, index)
    writing = asyncio.create_task(commits.run())
    try:
        yield Store(disk, index, commits, hot_bytes_max)
    finally:
        commits.close()
        await writing


def _scanned(disk: Disk) -> list[ChatFacts]:
    """The facts of every chat; logs that a crash has cut are put right."""
    chats = (_loaded(disk, chat_id).facts for chat_id in disk.chat_ids())
    return [facts for facts in chats if facts.last_n or facts.is_damaged]


def _loaded(disk: Disk, chat_id: str) -> Chat:
    with disk_errors(chat_id):
        data = disk.read(chat_id)
        reading = recovery.read(data, chat_id)
        if reading.is_damaged:
            log.error("log damaged", chat_id=chat_id, lines_read=len(reading.lines), size_bytes=len(data))
        elif reading.whole_bytes < len(data):
            tail = data[reading.whole_bytes :]
            disk.set_aside(chat_id, reading.whole_bytes, tail)
            log.warning("damaged tail set aside", chat_id=chat_id, size_bytes=len(tail))
    return Chat.of(chat_id, reading.lines, reading.whole_bytes, is_damaged=reading.is_damaged)
