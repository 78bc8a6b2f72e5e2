"""One end of a stream inside the process, bounded by the bytes that its reader has not read."""

from __future__ import annotations

import asyncio
from typing import Protocol

from services.runtime.calls.inbox import Inbox
from services.runtime.calls.metadata import Headers
from services.runtime.http2.limits import WINDOW_BYTES

MESSAGE_BYTES = 5
"""Bytes that a message counts for beside its own, as over HTTP/2; empty ones are bounded, too."""


class StreamOwner(Protocol):
    """The connection's end that a stream belongs to; all of this goes to the other end, in order."""

    def send_message(self, stream_id: int, message: bytes) -> None: ...

    def send_end(self, stream: LocalStream, trailers: Headers) -> None: ...

    def send_credit(self, stream_id: int, size: int) -> None:
        """Tell the sender that `size` bytes more were read."""
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
        """Bytes sent that the other end has not read, as far as it has told."""
        self._owed_bytes = 0
        """Bytes read here that the other end was not told of."""
        self._room: asyncio.Future[None] | None = None

    # In.

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
        """Do nothing: nobody in the process is a stranger."""

    # Out.

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

    # Its end.

    def receive_end(self) -> None:
        self.is_ended = True
        self.wake_reader()

    def close(self) -> None:
        self.is_local_open = False
        self.is_ended = True
        self._wake_sender()
        self.wake_reader()


def _count_bytes(message: bytes) -> int:
    # A reader of a single answer takes it when the call has ended, which a larger one must not delay.
    size = len(message) + MESSAGE_BYTES
    return size if size < WINDOW_BYTES else WINDOW_BYTES
