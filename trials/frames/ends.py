"""Feeds the same frames to our server and to h2 or libnghttp2."""

import asyncio
import re
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, RequestReceived, SettingsAcknowledged, TrailersReceived
from h2.exceptions import InvalidBodyLengthError, ProtocolError
from h2.settings import SettingCodes

from services.runtime.calls.ends import Compressed, Oversized
from services.runtime.calls.metadata import Headers
from services.runtime.http2 import limits
from services.runtime.http2.frames import LAST_STREAM_ID, OF_HEADERS, correct_frame
from services.runtime.http2.limits import Limits
from services.runtime.http2.server.connection import OpenCall, ServerConnection, ServerState
from services.runtime.http2.stream import Stream
from tests.support.http2 import wire
from trials.frames.nghttp2 import has_refusal, serving
from trials.fuzz.http2 import Socket

_ODD_NAME = re.compile(rb"[^:!#$%&'*+\-.^_`|~0-9a-z]")
_ODD_VALUE = re.compile(rb"[\0-\x08\x0a-\x1f\x7f]")

_AUTHORITY = re.compile(rb"[0-9A-Za-z.\-_~!$&'()*+,;=:@%\[\]]+")
_TARGETS = {
    b":method": re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"),
    b":scheme": re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*"),
    b":path": re.compile(rb"/[!-~\x80-\xff]*"),
    b":authority": _AUTHORITY,
    b"host": _AUTHORITY,
}
"""Values accepted by nghttp2; we answer others with 405 or UNIMPLEMENTED, and do not use scheme or authority."""

_GOAWAY_BYTES = 9 + 8
_CONNECTION = (bytes(4), b"\x80\0\0\0")

MESSAGE_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class Verdict:
    refused_at: int | None = None
    """Index of the piece at which the connection ended, or with `until_reset` a stream; None if none ended."""

    why: str = ""
    ignored: set[int] = field(default_factory=set[int])
    """Indices of pieces with DATA of a reset stream, of which only the size counts."""

    is_explained: bool = False
    """Whether the oracle differs for a reason given in decision 0016: h2 ends the connection if DATA does not
    match `content-length`.
    """

    is_grpc: bool = True
    """Whether all DATA were gRPC messages; otherwise the stream is reset, and later frames on it are meaningless."""

    requests: dict[int, Headers] = field(default_factory=dict[int, Headers])
    """Header lists of the accepted requests, by stream id."""


def try_h2(pieces: list[bytes]) -> Verdict:
    verdict = Verdict()
    config = H2Configuration(client_side=False, header_encoding=None, normalize_inbound_headers=False)
    connection = H2Connection(config)
    connection.local_settings.enable_push = 0
    connection.initiate_connection()
    connection.decoder.max_header_list_size = limits.HEADERS_BYTES_MAX
    connection.update_settings({SettingCodes.HEADER_TABLE_SIZE: 0})
    is_in_headers = False
    for index, piece in enumerate(pieces):
        kind, flags = piece[3], piece[4]
        if kind > wire.CONTINUATION and index and not is_in_headers:
            continue  # h2 parses ALTSVC, and refuses what it cannot read; a server ignores what it does not know
        if kind == wire.GOAWAY and not is_in_headers and len(piece) >= _GOAWAY_BYTES and piece[5:9] in _CONNECTION:
            continue  # h2 refuses all that follows; a client that leaves still ends its calls
        if kind == wire.CONTINUATION and not is_in_headers:
            verdict.refused_at, verdict.why = index, "h2 takes it for a late frame where it has reset the stream"
            break
        is_in_headers = kind in (wire.HEADERS, wire.CONTINUATION) and not flags & wire.END_HEADERS
        try:
            stream_id = int.from_bytes(piece[5:9]) & LAST_STREAM_ID
            if kind == wire.RST_STREAM and (stream_id % 2 == 0 or stream_id > connection.highest_inbound_stream_id):
                raise ProtocolError("a stream that was never opened; h2 says so only before there is one")
            events = connection.receive_data(correct_frame(kind, flags, piece))
            _take_events(verdict, connection, events)
        except InvalidBodyLengthError:
            verdict.is_explained = True
            break
        except ProtocolError as error:
            verdict.refused_at, verdict.why = index, f"{type(error).__name__}: {error}"
            break
    return verdict


def _take_events(verdict: Verdict, connection: H2Connection, events: list[Event]) -> None:
    for event in events:
        if isinstance(event, SettingsAcknowledged):
            # h2 expects to be told that the table is gone.
            connection.decoder.header_table_size = 0
        if isinstance(event, RequestReceived | TrailersReceived):
            headers = [(bytes(name), bytes(value)) for name, value in event.headers]
            if any(_ODD_NAME.search(name) or _ODD_VALUE.search(value) for name, value in headers):
                raise ProtocolError("characters that HTTP forbids and h2 lets pass")
            if (b":method", b"") in headers or (b":scheme", b"") in headers:
                raise ProtocolError("a method or scheme of no characters")
            if any(name == b":protocol" for name, _ in headers):
                raise ProtocolError("an extended CONNECT, which our settings do not allow")
            if isinstance(event, RequestReceived):
                verdict.requests[event.stream_id] = headers


class _Server(ServerConnection):
    def __init__(self, verdict: Verdict, open_call: OpenCall, state: ServerState) -> None:
        super().__init__(open_call, state)
        self._verdict = verdict

    def on_bad_message(self, stream: Stream, error: Oversized | Compressed) -> None:
        self._verdict.is_grpc = False
        super().on_bad_message(stream, error)


def try_nghttp2(units: list[bytes]) -> Verdict:
    """Return the requests that nghttp2 accepted before it refused a unit of `join_blocks`."""
    verdict = Verdict()
    with serving() as session:
        for index, unit in enumerate(units):
            if (refusal := session.receive(unit)) is not None:
                verdict.refused_at, verdict.why = index, refusal.why
                break
        verdict.requests = session.requests
    return verdict


def join_blocks(pieces: list[bytes]) -> list[bytes]:
    """Join the pieces of each header block, which some servers read in part.

    GOAWAY, unfinished blocks and everything after acknowledged SETTINGS are left out: from then on there is no
    header table, which only our server knows.
    """
    units: list[bytes] = []
    block = b""
    for piece in pieces:
        kind, flags = piece[3], piece[4]
        if block or (kind in (wire.HEADERS, wire.PUSH_PROMISE) and not flags & wire.END_HEADERS):
            block += piece
            if kind in OF_HEADERS and not flags & wire.END_HEADERS:
                continue
            piece, block = block, b""
        elif kind == wire.SETTINGS_KIND and flags & wire.ACK:
            break
        elif kind == wire.GOAWAY:
            continue
        units.append(piece)
    return units


def has_odd_request(verdict: Verdict) -> bool:
    """Return whether an accepted request has values that match no possible target."""
    return any(
        name in _TARGETS and not _TARGETS[name].fullmatch(value)
        for headers in verdict.requests.values()
        for name, value in headers
    )


async def try_ours(pieces: list[bytes], *, until_reset: bool = False) -> Verdict:
    verdict = Verdict()

    def note_request(connection: ServerConnection, stream: Stream, headers: Headers) -> None:
        verdict.requests[stream.id] = [(bytes(name), bytes(value)) for name, value in headers]

    state = ServerState(MESSAGE_BYTES_MAX, 0.0, Limits(turn_s=60.0))
    connection = _Server(verdict, note_request, state)
    socket = Socket(connection, room=1 << 30)
    connection.connection_made(socket)
    for index, piece in enumerate(pieces):
        if piece[3] == wire.DATA and connection.h2.has_reset(int.from_bytes(piece[5:9]) & LAST_STREAM_ID):
            verdict.ignored.add(index)
        known = dict(verdict.requests)
        connection.data_received(piece)
        if until_reset:
            await asyncio.sleep(0)
        if socket.is_closed or (until_reset and has_refusal(bytes(socket.written))):
            verdict.refused_at, verdict.requests = index, known
            break
        socket.written.clear()
    connection.connection_lost(None)
    return verdict
