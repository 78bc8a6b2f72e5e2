"""The interface of the connection below a call, at either end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from services.runtime.calls.addresses import Address, Target
from services.runtime.calls.metadata import Headers

if TYPE_CHECKING:
    from services.runtime.calls.client_call import Call


class CallStream(Protocol):
    """Messages in both directions, bounded by bytes; `inbox.Inbox` has the half that is read."""

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
        """Take as much as of any caller, since somebody has admitted this one."""
        ...

    def send(self, message: bytes) -> bool:
        """Send a message; False if `wait_until_drained` is due."""
        ...

    def send_last(self, message: bytes) -> None:
        """Send a message and end our side."""
        ...

    def end_local(self, trailers: Headers) -> None:
        """End our side after what was sent."""
        ...

    async def wait_until_drained(self) -> None:
        """Wait, in one task, until there is room for more or the stream is closed."""
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
        """Return a connection that calls may be opened on; raises OSError with address and reason.

        It calls `on_free` when there is room for another call, `on_gone` when it takes no more, with the reason.
        """
        ...


class ServerEnd(Protocol):
    """A server's end of a connection."""

    @property
    def peer(self) -> str: ...

    @property
    def request_s(self) -> float:
        """Time for the message of a call that has just one."""
        ...

    @property
    def is_foreign_user(self) -> bool:
        """Whether another user of this machine is at the other end."""
        ...

    def read_peer_identity(self) -> Mapping[str, Iterable[bytes]]:
        """Return the names in the peer's certificate by gRPC's keys."""
        ...

    def send_headers(self, stream_id: int, headers: Headers) -> None: ...

    def cancel_stream(self, stream_id: int) -> None:
        """End both sides of a stream, with what still waits in it."""
        ...

    def note_admitted(self) -> None:
        """Note that a call was admitted: the peer is no stranger."""
        ...

    def on_call_end(self, stream_id: int) -> None: ...
