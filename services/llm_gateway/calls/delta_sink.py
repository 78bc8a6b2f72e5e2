"""The path of one attempt's deltas to the caller: each sent at once and counted; notes when the caller falls behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.v1.llm_pb2 import LlmDelta
    from services.runtime.rpc.push_stream import MessageSink


class DeltaSink:
    """Belongs to one attempt."""

    __slots__ = ("_caller", "_send", "is_behind", "sent")

    def __init__(self, caller: MessageSink, send: Callable[[bytes], bool]) -> None:
        self._caller = caller
        self._send = send
        """The caller's own `send`, or a wrapper that also logs."""
        self.sent = 0
        self.is_behind = False
        """Whether the caller has not yet read all that it was sent."""

    def send_bytes(self, delta: bytes) -> None:
        """Send a serialized delta."""
        self.sent += 1
        if not self._send(delta):
            self.is_behind = True

    def send_delta(self, delta: LlmDelta) -> None:
        self.send_bytes(delta.SerializeToString())

    async def wait_until_drained(self) -> None:
        """Wait until the caller has caught up."""
        await self._caller.wait_until_drained()
        self.is_behind = False
