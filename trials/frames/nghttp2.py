"""A libnghttp2 server, through ctypes: the library comes with curl, so nothing is compiled.

Functions: https://nghttp2.org/documentation/apiref.html
"""

import ctypes
import ctypes.util
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.runtime.calls.metadata import Headers
from services.runtime.http2 import limits
from services.runtime.http2.frames import LAST_STREAM_ID
from tests.support.http2.wire import DATA, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE

_PATH = ctypes.util.find_library("nghttp2")
needs_nghttp2 = pytest.mark.skipif(_PATH is None, reason="libnghttp2 is not installed on this machine")

_REFUSED = -521
"""NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE, which resets the stream."""

_HEAD_BYTES = 9


class _FrameHead(ctypes.Structure):
    """`nghttp2_frame_hd`, the start of each frame."""

    _fields_ = (("size", ctypes.c_size_t), ("stream_id", ctypes.c_int32), ("kind", ctypes.c_uint8))


_FRAME = (ctypes.c_void_p, ctypes.POINTER(_FrameHead))
_TEXT = (ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
_ON_FRAME = ctypes.CFUNCTYPE(ctypes.c_int, *_FRAME, ctypes.c_void_p)
_ON_HEADER = ctypes.CFUNCTYPE(ctypes.c_int, *_FRAME, *_TEXT, *_TEXT, ctypes.c_uint8, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Refusal:
    stream_id: int
    """Id of the refused stream; 0 if the connection ends."""

    why: str


@dataclass
class Session:
    """The server's end of one connection."""

    library: Any
    handle: ctypes.c_void_p
    requests: dict[int, Headers] = field(default_factory=dict[int, Headers])
    """Header lists of the accepted requests, by stream id."""

    open: dict[int, Headers] = field(default_factory=dict[int, Headers])
    """Header lists that are not complete yet."""

    taken: int = 0
    """Number of valid frames."""

    def receive(self, unit: bytes) -> Refusal | None:
        """Receive a frame or a whole header block, and return the refusal that it causes, if any."""
        before = self.taken
        if self.library.nghttp2_session_mem_recv(self.handle, unit, len(unit)) < 0:
            return Refusal(0, "the session failed")
        output, refusal = ctypes.c_void_p(), None
        while (size := self.library.nghttp2_session_mem_send(self.handle, ctypes.byref(output))) > 0:
            refusal = refusal or _read_refusal(ctypes.string_at(output, size))
        # On a closed stream, it ignores even an invalid window update.
        is_empty_window = unit[3] == WINDOW_UPDATE and not int.from_bytes(unit[_HEAD_BYTES:]) & LAST_STREAM_ID
        if refusal is None and (is_empty_window or (unit[3] in (HEADERS, DATA) and self.taken == before)):
            return Refusal(int.from_bytes(unit[5:9]), "it ignores the frame")
        return refusal

    def begin_headers(self, stream_id: int) -> int:
        self.open[stream_id] = []
        return 0

    def take_header(self, stream_id: int, name: bytes, value: bytes) -> int:
        headers = self.open[stream_id]
        headers.append((name, value))
        size = sum(len(name) + len(value) + 32 for name, value in headers)
        return _REFUSED if size > limits.HEADERS_BYTES_MAX else 0

    def refuse_header(self, stream_id: int, name: bytes, value: bytes) -> int:
        """Refuse the stream; nghttp2 would drop the header and accept the rest."""
        self.take_header(stream_id, name, value)
        return _REFUSED

    def take_frame(self, stream_id: int) -> int:
        headers = self.open.pop(stream_id, None)
        hosts = {value for name, value in headers or () if name in (b":authority", b"host")}
        if len(hosts) > 1:
            return 0  # nghttp2 allows this
        self.taken += 1
        if headers is not None:
            self.requests.setdefault(stream_id, headers)
        return 0


def has_refusal(output: bytes) -> bool:
    """Return whether a frame ends a stream or the connection."""
    while output:
        if _read_refusal(output) is not None:
            return True
        output = output[_HEAD_BYTES + int.from_bytes(output[:3]) :]
    return False


def _read_refusal(frame: bytes) -> Refusal | None:
    size, kind = int.from_bytes(frame[:3]), frame[3]
    payload = frame[_HEAD_BYTES : _HEAD_BYTES + size]
    if kind == GOAWAY:
        return Refusal(0, f"code {int.from_bytes(payload[4:8])} {payload[8:]!r}")
    return Refusal(int.from_bytes(frame[5:9]), f"code {int.from_bytes(payload)}") if kind == RST_STREAM else None


@contextmanager
def serving() -> Generator[Session]:
    """Open a session that has sent its settings."""
    library: Any = ctypes.CDLL(_PATH)
    library.nghttp2_session_mem_recv.restype = library.nghttp2_session_mem_send.restype = ctypes.c_ssize_t
    library.nghttp2_session_mem_recv.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    session = Session(library, ctypes.c_void_p())

    @_ON_FRAME
    def begin_headers(_: Any, frame: Any, __: Any) -> int:
        return session.begin_headers(frame.contents.stream_id)

    @_ON_FRAME
    def take_frame(_: Any, frame: Any, __: Any) -> int:
        return session.take_frame(frame.contents.stream_id)

    @_ON_HEADER
    def take_header(_: Any, frame: Any, name: Any, name_size: int, value: Any, size: int, *__: Any) -> int:
        return session.take_header(frame.contents.stream_id, name[:name_size], value[:size])

    @_ON_HEADER
    def refuse_header(_: Any, frame: Any, name: Any, name_size: int, value: Any, size: int, *__: Any) -> int:
        return session.refuse_header(frame.contents.stream_id, name[:name_size], value[:size])

    callbacks, options = ctypes.c_void_p(), ctypes.c_void_p()
    library.nghttp2_session_callbacks_new(ctypes.byref(callbacks))
    library.nghttp2_option_new(ctypes.byref(options))
    try:
        library.nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers)
        library.nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, take_frame)
        library.nghttp2_session_callbacks_set_on_header_callback(callbacks, take_header)
        library.nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, refuse_header)
        library.nghttp2_option_set_no_auto_window_update(options, 1)
        assert not library.nghttp2_session_server_new2(ctypes.byref(session.handle), callbacks, None, options)
    finally:
        library.nghttp2_option_del(options)
        library.nghttp2_session_callbacks_del(callbacks)
    try:
        assert not library.nghttp2_submit_settings(session.handle, 0, None, ctypes.c_size_t(0))
        yield session
    finally:
        library.nghttp2_session_del(session.handle)
