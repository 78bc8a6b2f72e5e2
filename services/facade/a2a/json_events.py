"""A task's events as frames of Server-Sent Events, in the form of the call that asked for them."""

from __future__ import annotations

from typing import Any

import orjson

from services.facade.a2a.protocol import CURSOR, Call
from services.facade.a2a.task_view import ANSWER
from services.facade.responses.frame_writer import FrameWriter


class JsonEvents:
    """An event sink; where the caller wants cursors, updates have them in their metadata, beside the frame's id."""

    def __init__(self, writer: FrameWriter, call: Call, *, has_cursors: bool, n: str = "") -> None:
        """`n` is what names the task in a context that is followed."""
        self._n = f"{n}.".encode() if n else b""
        self._writer = writer
        self._head, self._tail = call.encode_result({"": 0}).split(b'{"":0}')
        self._has_cursors = has_cursors
        self._piece_head = b""
        """What stands before the text of each piece, which only text and cursor change."""

    def send_event(self, event: dict[str, Any], seq: int) -> bool:
        if self._has_cursors:
            event = {kind: value | {"metadata": {CURSOR: f"{self._n.decode()}{seq}"}} for kind, value in event.items()}
        return self._send_frame(orjson.dumps(event), seq)

    def send_piece(self, ids: dict[str, str], text: str, seq: int, *, append: bool) -> bool:
        if not self._piece_head:
            known = orjson.dumps(ids)[:-1]
            self._piece_head = b'{"artifactUpdate":%b,"artifact":{"artifactId":"%b","parts":[{"text":' % (
                known,
                ANSWER.encode(),
            )
        word = b"true" if append else b"false"
        cursor = b',"metadata":{"%b":"%b%d"}' % (CURSOR.encode(), self._n, seq) if self._has_cursors else b""
        return self._send_frame(b'%b%b}]},"append":%b%b}}' % (self._piece_head, orjson.dumps(text), word, cursor), seq)

    def _send_frame(self, event: bytes, seq: int) -> bool:
        return self._writer.send_frame(b"id: %b%d\ndata: %b%b%b\n\n" % (self._n, seq, self._head, event, self._tail))

    async def wait_until_drained(self) -> None:
        if self._writer.has_frames:
            await self._writer.wait_until_drained()
