"""Interfaces below a call, at either end: connections and streams, queued messages, deadlines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from services.runtime.calls.addresses import Address, Target
from services.runtime.calls.metadata import Headers, Pairs, ServerStatus

if TYPE_CHECKING:
    from services.runtime.calls.client_call import Call


class CallStream(Protocol):
    """Messages in both directions, bounded by bytes; `inbox.Inbox` implements the receiving half."""

    id: int
    inbox: deque[bytes]
    take: Callable[[bytes], None] | None
    is_ended: bool
    is_local_open: bool
    message_bytes_max: int

    @property
    def is_cut(self) -> bool:
        """Whether the peer ended in the middle of a message."""
        ...

    def pop_message(self) -> bytes: ...
    async def wait_for_message(self) -> None: ...
    def wake_reader(self) -> None: ...

    def lift_bound(self) -> None:
        """Accept as much data as from any caller: the call has been admitted."""
        ...

    def send(self, message: bytes) -> bool:
        """Send a message; False if `wait_until_drained` is due."""
        ...

    def end_local(self) -> None:
        """End our side after the messages sent."""
        ...

    async def wait_until_drained(self) -> None:
        """Wait until there is room for more or the stream is closed; only one task may wait."""
        ...


class ClientEnd(Protocol):
    """A channel's connection."""

    is_leaving: bool
    is_lost: bool

    @property
    def has_room(self) -> bool: ...

    def open_call(self, call: Call) -> None:
        """Open a stream for `call`; there must be room."""
        ...

    def drop_stream(self, stream_id: int) -> None:
        """Reset the stream of an abandoned call."""
        ...

    def close_when_done(self) -> None: ...
    async def close(self) -> None: ...


class Dialer(Protocol):
    """Opens a channel's connections."""

    @property
    def target(self) -> Target: ...

    async def open_connection(
        self, address: Address, on_free: Callable[[], None], on_gone: Callable[[ClientEnd, str], None]
    ) -> ClientEnd:
        """Return a connection on which calls may be opened; raises OSError with address and reason.

        It calls `on_free` when it has room for another call, and `on_gone`, with the reason, when it accepts no more.
        """
        ...


class ServerEnd(Protocol):
    """A server's end of a connection."""

    @property
    def peer(self) -> str: ...

    @property
    def request_s(self) -> float:
        """Time for the message of a call that has exactly one."""
        ...

    @property
    def is_foreign_user(self) -> bool:
        """Whether the peer is another user of this machine."""
        ...

    def read_peer_identity(self) -> Mapping[str, Iterable[bytes]]:
        """Return the names in the peer's certificate, by gRPC's keys."""
        ...

    def send_headers(self, stream_id: int, headers: Headers) -> None: ...

    def finish_stream(
        self, stream: CallStream, initial: Pairs | None, message: bytes | None, status: ServerStatus
    ) -> None:
        """Send the rest of an answer: initial metadata unless they were sent, a last message if any, and the status."""
        ...

    def cancel_stream(self, stream_id: int) -> None:
        """End both sides of a stream and discard its unsent data."""
        ...

    def note_admitted(self) -> None:
        """Record that a call was admitted: the peer is no stranger."""
        ...

    def on_call_end(self, stream_id: int) -> None: ...


EMPTY: deque[bytes] = deque(maxlen=0)
"""The shared inbox of streams that keep no messages; a deque takes 760 bytes."""


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
        """Whether no more messages will arrive."""
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
        """Wait until a message arrives or none will; only one task may wait."""
        while not self.inbox and not self.is_ended:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None

    def wake_reader(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Deadline:
    __slots__ = ("_due_s", "_loop", "_timer")

    def __init__(self, timeout_s: float, on_passed: Callable[..., object], *args: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time() + timeout_s
        self._timer = self._loop.call_later(max(timeout_s, 0), on_passed, *args)

    @property
    def remaining_s(self) -> float:
        return max(self._due_s - self._loop.time(), 0.0)

    def cancel(self) -> None:
        self._timer.cancel()
