"""Streams inside the process, bounded by unread bytes, and the links that carry them.

A link is one direction of a connection: items arrive in order, in a later turn of the loop. Nothing is called in the
sender's stack or context, as with a socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol, TypeAlias

from services.runtime.calls.ends import Inbox
from services.runtime.calls.metadata import Headers
from services.runtime.http2.limits import WINDOW_BYTES

Schedule: TypeAlias = "Callable[[Callable[[], None], Context], object]"
"""Calls back once, in a context: as soon as the loop can, or after a simulated network delay."""


class Link:
    __slots__ = ("_context", "_is_due", "_queue", "_schedule")

    def __init__(self, schedule: Schedule, context: Context) -> None:
        """`context` is the receiver's."""
        self._schedule = schedule
        self._context = context
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_due = False

    def send(self, receive: Callable[..., None], *args: Any) -> None:
        """Call `receive` with `args` in the receiver, after all earlier items."""
        self._queue.append((receive, args))
        if not self._is_due:
            self._is_due = True
            self._schedule(self._deliver, self._context)

    def _deliver(self) -> None:
        queue = self._queue
        try:
            for _ in range(len(queue)):
                receive, args = queue.popleft()
                receive(*args)
        finally:
            # Items sent in the meantime get the next turn, and so do those left after an exception.
            self._is_due = bool(queue)
            if queue:
                self._schedule(self._deliver, self._context)


MESSAGE_BYTES = 5
"""Bytes added to a message's size, as over HTTP/2, so that empty messages are bounded, too."""


class StreamOwner(Protocol):
    """The connection's end that a stream belongs to; every call is passed to the other end, in order."""

    def send_message(self, stream_id: int, message: bytes) -> None: ...

    def send_end(self, stream: LocalStream, trailers: Headers) -> None: ...

    def send_credit(self, stream_id: int, size: int) -> None:
        """Notify the sender that `size` more bytes were read."""
        ...


class LocalStream(Inbox):
    __slots__ = ("_owed_bytes", "_owner", "_room", "_unread_bytes", "id", "is_local_open", "message_bytes_max")

    is_cut = False

    def __init__(self, owner: StreamOwner, stream_id: int, message_bytes_max: int) -> None:
        super().__init__()
        self.id = stream_id
        self.message_bytes_max = message_bytes_max
        self.is_local_open = True
        self._owner = owner
        self._unread_bytes = 0
        """Bytes sent that the other end has not reported as read."""
        self._owed_bytes = 0
        """Bytes read here but not yet reported to the other end."""
        self._room: asyncio.Future[None] | None = None

    # Input.

    def receive_message(self, message: bytes) -> None:
        if self.take is None:
            self.put_message(message)
        else:
            self.take(message)
            self._return_bytes(_count_bytes(message))

    def pop_message(self) -> bytes:
        message = self.take_first()
        self._return_bytes(_count_bytes(message))
        return message

    def _return_bytes(self, size: int) -> None:
        self._owed_bytes += size
        if self._owed_bytes >= WINDOW_BYTES // 2:
            self._owner.send_credit(self.id, self._owed_bytes)
            self._owed_bytes = 0

    def lift_bound(self) -> None:
        """Do nothing: callers inside the process are no strangers."""

    # Output.

    def send(self, message: bytes) -> bool:
        if self.is_local_open:
            self._unread_bytes += _count_bytes(message)
            self._owner.send_message(self.id, message)
        return self._has_room

    def send_last(self, message: bytes) -> None:
        self.send(message)
        self.end_local([])

    def end_local(self, trailers: Headers) -> None:
        if self.is_local_open:
            self.is_local_open = False
            self._owner.send_end(self, trailers)
            self._wake_sender()

    async def wait_until_drained(self) -> None:
        while not self._has_room:
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def receive_credit(self, size: int) -> None:
        self._unread_bytes -= size
        if self._has_room:
            self._wake_sender()

    @property
    def _has_room(self) -> bool:
        return self._unread_bytes <= WINDOW_BYTES or not self.is_local_open

    def _wake_sender(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # End of the stream.

    def receive_end(self) -> None:
        self.is_ended = True
        self.wake_reader()

    def close(self) -> None:
        self.is_local_open = False
        self.is_ended = True
        self._wake_sender()
        self.wake_reader()


def _count_bytes(message: bytes) -> int:
    # The reader of a single answer takes it after the call has ended, so a large answer must not delay the end.
    size = len(message) + MESSAGE_BYTES
    return size if size < WINDOW_BYTES else WINDOW_BYTES
