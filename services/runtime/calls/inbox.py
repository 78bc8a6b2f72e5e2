"""Messages of a stream that wait for their reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

EMPTY: deque[bytes] = deque(maxlen=0)
"""The shared inbox of streams that keep no messages; a deque weighs 760 bytes."""


class Oversized(Exception):
    """The peer's message is larger than allowed."""


class Compressed(Exception):
    """The peer's message has an encoding that was not offered."""


class Inbox:
    __slots__ = ("_waiting", "inbox", "is_ended", "take")

    def __init__(self) -> None:
        self.inbox = EMPTY
        self.take: Callable[[bytes], None] | None = None
        """Receives each message at once, in the connection's callback; must not raise."""
        self.is_ended = False
        """Whether nothing more will arrive."""
        self._waiting: asyncio.Future[None] | None = None

    def put_message(self, message: bytes) -> None:
        if self.inbox is EMPTY:
            self.inbox = deque()
        self.inbox.append(message)
        if self._waiting is not None:
            self.wake_reader()

    def take_first(self) -> bytes:
        message = self.inbox.popleft()
        if self.is_ended and not self.inbox:
            self.inbox = EMPTY
        return message

    async def wait_for_message(self) -> None:
        """Wait, in one task, until there is a message or none will come."""
        while not self.inbox and not self.is_ended:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None

    def wake_reader(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
