"""The `h2` library, which keeps settings and stream states and reads foreign header blocks.

It sees only the effect of our own frames on a stream.
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
    """The peer's default size for a table that we do not use."""


class H2State(H2Connection):
    MAX_CLOSED_STREAMS = limits.CLOSED_STREAMS_KEPT

    def __init__(self, *, client_side: bool, streams_max: int) -> None:
        super().__init__(
            H2Configuration(
                client_side=client_side,
                header_encoding=None,
                # `header_blocks.check_headers` does this: h2 examines every byte in Python.
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
            )
        )
        self.encoder = _NoEncoder()  # pyright: ignore[reportAttributeAccessIssue] - h2 only sets its table's size
        self._has_no_table = False
        self._table_blocks_left = limits.TABLE_BLOCKS_MAX
        self.decoder.max_header_list_size = limits.HEADERS_BYTES_TAKEN_MAX
        self.local_settings = Settings(
            client=client_side,
            initial_values={
                # Until it knows this, the peer may use the initial table of 4 KiB.
                SettingCodes.HEADER_TABLE_SIZE: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: limits.FRAME_BYTES_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.HEADERS_BYTES_MAX,
                # Servers open none; with 0, h2 mistakes the late end of a stream that we have reset for a new stream of
                # theirs.
                SettingCodes.MAX_CONCURRENT_STREAMS: 1 if client_side else streams_max,
                SettingCodes.ENABLE_PUSH: 0,
            },
        )

    def note_foreign_block(self) -> None:
        """Record a header block that may use the table, before it is decoded."""
        if not self._table_blocks_left:
            self.forget_table()
        self._table_blocks_left -= 1

    def forget_table(self) -> None:
        """Accept no more header blocks that refer to earlier ones."""
        self.decoder.header_table_size = self.decoder.max_allowed_table_size = 0

    def send_headers_of(self, stream_id: int, block: bytes, *, is_end: bool) -> bytes:
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
        self.streams[stream_id].state_machine.process_input(StreamInputs.SEND_END_STREAM)

    def note_request(self, stream_id: int) -> bool:
        """Record a request's headers; return False if they open no stream."""
        if stream_id <= self.highest_inbound_stream_id or not stream_id % 2:
            return False
        self.state_machine.process_input(ConnectionInputs.RECV_HEADERS)
        stream = self._begin_new_stream(stream_id, AllowedStreamIDs.ODD)
        stream.state_machine.process_input(StreamInputs.RECV_HEADERS)
        return True

    def note_answer(self, stream_id: int, *, is_end: bool) -> None:
        self.state_machine.process_input(ConnectionInputs.RECV_HEADERS)
        state = self.streams[stream_id].state_machine
        state.process_input(StreamInputs.RECV_HEADERS)
        if is_end:
            state.process_input(StreamInputs.RECV_END_STREAM)

    def note_received_end(self, stream_id: int) -> None:
        state = self.streams[stream_id].state_machine
        state.process_input(StreamInputs.RECV_DATA)
        state.process_input(StreamInputs.RECV_END_STREAM)

    def _open_streams(self, remainder: int) -> int:
        # h2 would examine all open streams each time one opens, and end the connection instead of refusing a stream.
        return 0

    def take_length(self, stream_id: int) -> int | None:
        """Return the peer's content-length and clear it, because h2 does not see the DATA frames it would count."""
        state = self.streams[stream_id]
        length = state._expected_content_length  # pyright: ignore[reportPrivateUsage] - no other way
        state._expected_content_length = None  # pyright: ignore[reportPrivateUsage]
        return length

    def forget_stream(self, stream_id: int) -> None:
        """Keep only how the stream was closed."""
        if (stream := self.streams.pop(stream_id, None)) is not None:
            self._closed_streams[stream_id] = stream.closed_by

    def is_idle(self, stream_id: int) -> bool:
        is_outbound = self._stream_id_is_outbound(stream_id)
        return stream_id > (self.highest_outbound_stream_id if is_outbound else self.highest_inbound_stream_id)

    def has_reset(self, stream_id: int) -> bool:
        return self._closed_streams.get(stream_id) is StreamClosedBy.SEND_RST_STREAM
