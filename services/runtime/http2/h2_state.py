"""The `h2` library as we use it: what we tell it, and where we go round it.

It owns settings, the states of streams, what may be sent, and the header blocks that are not our own ends' (see
header_blocks.py). Of ours it takes only what they do to a stream.
"""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import AllowedStreamIDs, ConnectionInputs, H2Connection
from h2.settings import SettingCodes, Settings
from h2.stream import StreamClosedBy, StreamInputs

from services.runtime.http2 import frames, limits
from services.runtime.http2.header_blocks import NO_TABLE


class _NoEncoder:
    header_table_size = 0
    """As large as the peer would have the table that we do not use."""


class H2State(H2Connection):
    """Belongs to one connection."""

    MAX_CLOSED_STREAMS = limits.CLOSED_STREAMS_KEPT
    DEFAULT_MAX_HEADER_LIST_SIZE = limits.HEADERS_BYTES_TAKEN_MAX

    def __init__(self, *, client_side: bool, streams_max: int) -> None:
        super().__init__(
            H2Configuration(
                client_side=client_side,
                header_encoding=None,
            )
        )
        self.encoder = _NoEncoder()  # pyright: ignore[reportAttributeAccessIssue] - h2 only sets its table's size
        self._has_no_table = False
        """The peer was told so."""
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

    def send_headers_of(self, stream_id: int, block: bytes, *, is_end: bool) -> bytes:
        """The frames of a header block that is to be sent, on a new stream for a client's request."""
        self.state_machine.process_input(ConnectionInputs.SEND_HEADERS)
        stream = self._get_or_create_stream(stream_id, AllowedStreamIDs(self.config.client_side))
        stream.state_machine.process_input(StreamInputs.SEND_HEADERS)
        if is_end:
            stream.state_machine.process_input(StreamInputs.SEND_END_STREAM)
        if not self._has_no_table:
            self._has_no_table = True
            block = NO_TABLE + block
        return frames.encode_headers(stream_id, block, is_end=is_end)

    def note_sent_end(self, stream_id: int) -> None:
        """Note that our last DATA frame is on its way."""
        self.streams[stream_id].state_machine.process_input(StreamInputs.SEND_END_STREAM)

    def note_request(self, stream_id: int) -> bool:
        """Note the headers of a client's request; False: they open no stream."""
        if stream_id <= self.highest_inbound_stream_id or not stream_id % 2:
            return False
        self.state_machine.process_input(ConnectionInputs.RECV_HEADERS)
        stream = self._begin_new_stream(stream_id, AllowedStreamIDs.ODD)
        stream.state_machine.process_input(StreamInputs.RECV_HEADERS)
        return True

    def note_answer(self, stream_id: int, *, is_end: bool) -> None:
        """Note headers or trailers of a server's answer."""
        self.state_machine.process_input(ConnectionInputs.RECV_HEADERS)
        state = self.streams[stream_id].state_machine
        state.process_input(StreamInputs.RECV_HEADERS)
        if is_end:
            state.process_input(StreamInputs.RECV_END_STREAM)

    def note_received_end(self, stream_id: int) -> None:
        """Note the peer's last DATA frame of an open stream."""
        state = self.streams[stream_id].state_machine
        state.process_input(StreamInputs.RECV_DATA)
        state.process_input(StreamInputs.RECV_END_STREAM)

    def _open_streams(self, remainder: int) -> int:
        # h2 would look at every open stream for each that is opened, and end the connection where one is to be refused.
        return 0

    def ignore_length(self, stream_id: int) -> None:
        """Take no heed of a content-length: h2 would count DATA frames against it, and does not see them."""
        self.streams[stream_id]._expected_content_length = None  # pyright: ignore[reportPrivateUsage] - no other way

    def forget_stream(self, stream_id: int) -> None:
        """Keep no more of a stream than how it was closed."""
        if (stream := self.streams.pop(stream_id, None)) is not None:
            self._closed_streams[stream_id] = stream.closed_by

    def has_reset(self, stream_id: int) -> bool:
        """Whether we have reset the stream; what the peer sent before it knew is nobody's."""
        return self._closed_streams.get(stream_id) is StreamClosedBy.SEND_RST_STREAM
