"""The `h2` library as we use it: what we tell it, and where we go round it.

It owns settings, HPACK, the states of streams and what may be sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from h2.stream import StreamClosedBy
from hpack import Encoder

from services.runtime.http2 import limits


class _PlainEncoder(Encoder):
    """Without Huffman codes: in Python they cost both ends more time than their bytes would on any network."""

    def encode(self, headers: Iterable[Any], huffman: bool = False) -> bytes:
        return super().encode(headers, huffman)


class H2State(H2Connection):
    """Belongs to one connection."""

    MAX_CLOSED_STREAMS = limits.CLOSED_STREAMS_KEPT
    DEFAULT_MAX_HEADER_LIST_SIZE = limits.HEADERS_BYTES_TAKEN_MAX

    def __init__(self, *, client_side: bool, streams_max: int) -> None:
        super().__init__(
            H2Configuration(
                client_side=client_side,
                header_encoding=None,
                # What we send we have made ourselves, and checked where callers gave it.
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.encoder = _PlainEncoder()
        self.local_settings = Settings(
            client=client_side,
            initial_values={
                SettingCodes.INITIAL_WINDOW_SIZE: limits.WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: limits.FRAME_BYTES_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.HEADERS_BYTES_MAX,
                # Servers open none; with 0 h2 takes the late end of a stream that we have reset for one that they open.
                SettingCodes.MAX_CONCURRENT_STREAMS: 1 if client_side else streams_max,
                SettingCodes.ENABLE_PUSH: 0,
            },
        )

    def _open_streams(self, remainder: int) -> int:
        # h2 would look at every open stream for each that is opened, and end the connection where one is to be refused.
        return 0

    def ignore_length(self, stream_id: int) -> None:
        """Take no heed of a content-length: h2 would count DATA frames against it, and does not see them."""
        self.streams[stream_id]._expected_content_length = None  # pyright: ignore[reportPrivateUsage] - no other way

    def forget(self, stream_id: int) -> None:
        """Keep no more of a stream than how it was closed."""
        if (stream := self.streams.pop(stream_id, None)) is not None:
            self._closed_streams[stream_id] = stream.closed_by

    def has_reset(self, stream_id: int) -> bool:
        """Whether we have reset the stream; what the peer sent before it knew is nobody's."""
        return self._closed_streams.get(stream_id) is StreamClosedBy.SEND_RST_STREAM
