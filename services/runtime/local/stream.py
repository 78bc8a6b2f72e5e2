"""Streams inside the process, bounded by unread bytes, and the links that carry them.

A link is one direction of a connection. Items arrive in order and in the receiver's context: at once over a
`DirectLink`; those of a simulation (trials/simulation) delay them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from services.runtime.calls.ends import Inbox
from services.runtime.http2.limits import WINDOW_BYTES


class Link(Protocol):
    def send(self, receive: Callable[..., None], *args: Any) -> None:
        """Call `receive` with `args` in the receiver's context, after all earlier items."""
        ...


class DirectLink:
    """Calls the receiver in the sender's stack; the receiver only stores, wakes, or passes on what it gets."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def send(self, receive: Callable[..., None], *args: Any) -> None:
        # A copy, because a receiver may send to the sender, and nobody can enter a context twice.
        self._context.copy().run(receive, *args)


MESSAGE_BYTES = 5
"""Bytes added to a message's size, as over HTTP/2, so that empty messages are bounded, too."""


class StreamTarget(Protocol):
    """The other end of a connection."""

    def receive_message(self, stream_id: int, message: bytes) -> None: ...

    def receive_end(self, stream_id: int) -> None: ...

    def receive_credit(self, stream_id: int, size: int) -> None:
        """Let the sender know that `size` more bytes were read."""
        ...


class LocalStream(Inbox):
    """One end's half of a stream: `send` and `end_local` reach the other end over `link`."""

    __slots__ = (
        "_link",
        "_room",
        "_target",
        "_unread_bytes",
        "id",
        "is_local_open",
        "message_bytes_max",
        "owed_bytes",
    )

    is_cut = False

    def __init__(self, link: Link, target: StreamTarget, stream_id: int, message_bytes_max: int) -> None:
        super().__init__()
        self.id = stream_id
        self.message_bytes_max = message_bytes_max
        self.is_local_open = True
        self._link, self._target = link, target
        self._unread_bytes = 0
        """Bytes sent that the other end has not reported as read."""
        self.owed_bytes = 0
        """Bytes read here but not yet reported to the other end."""
        self._room: asyncio.Future[None] | None = None

    # Input.

    def pop_message(self) -> bytes:
        message = self.take_first()
        self.owed_bytes += min(len(message) + MESSAGE_BYTES, WINDOW_BYTES)
        if self.owed_bytes >= WINDOW_BYTES // 2:
            self.return_credit()
        return message

    def return_credit(self) -> None:
        owed_bytes, self.owed_bytes = self.owed_bytes, 0
        self._link.send(self._target.receive_credit, self.id, owed_bytes)

    def lift_bound(self) -> None:
        """Do nothing: callers inside the process are no strangers."""

    # Output.

    def send(self, message: bytes) -> bool:
        if not self.is_local_open:
            return True
        # The reader of a single answer takes it after the call has ended, so a large answer must not delay the end.
        self._unread_bytes += min(len(message) + MESSAGE_BYTES, WINDOW_BYTES)
        self._link.send(self._target.receive_message, self.id, message)
        return self._unread_bytes <= WINDOW_BYTES or not self.is_local_open

    def end_local(self) -> None:
        if self.is_local_open:
            self.is_local_open = False
            self._link.send(self._target.receive_end, self.id)
            self._wake_sender()

    async def wait_until_drained(self) -> None:
        while self.is_local_open and self._unread_bytes > WINDOW_BYTES:
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def receive_credit(self, size: int) -> None:
        self._unread_bytes -= size
        if self._unread_bytes <= WINDOW_BYTES:
            self._wake_sender()

    def _wake_sender(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # End of the stream.

    def close(self) -> None:
        self.is_local_open = False
        self.is_ended = True
        if self._room is not None:
            self._wake_sender()
        if self._waiting is not None:
            self.wake_reader()
