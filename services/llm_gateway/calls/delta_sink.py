"""Sends an attempt's deltas to the caller at once, and counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.v1.llm_pb2 import LlmDelta
    from services.runtime.rpc.push_stream import MessageSink


class DeltaSink:
    __slots__ = ("_caller", "_send", "is_behind", "sent")

    def __init__(self, caller: MessageSink, send: Callable[[bytes], bool]) -> None:
        self._caller = caller
        self._send = send
        self.sent = 0
        self.is_behind = False

    def send_bytes(self, delta: bytes) -> None:
        self.sent += 1
        if not self._send(delta):
            self.is_behind = True

    def send_delta(self, delta: LlmDelta) -> None:
        self.send_bytes(delta.SerializeToString())

    async def wait_until_drained(self) -> None:
        await self._caller.wait_until_drained()
        self.is_behind = False
