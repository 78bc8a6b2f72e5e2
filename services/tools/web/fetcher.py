"""Fetches one URL: each redirect checked like the first address, a bounded body, failures described for the model."""

from __future__ import annotations

import asyncio
import importlib
import ssl
import zlib
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import (
    PORTS,
    Resolve,
    Target,
    TargetRefused,
    checked_addresses,
    keep_encoding,
    parse_target,
    resolve_name,
)
from services.tools.errors import ToolFailed

if TYPE_CHECKING:
    from aiohttp import CookieJar

FETCH_S = 20.0
"""Time of a fetch, including redirects."""

REDIRECTS_MAX = 10
"""More than the seven between a DOI and its article."""

PIECE_BYTES = 64 * 1024

REDIRECTS = frozenset({301, 302, 303, 307, 308})

HEADERS = {
    "User-Agent": "headrace/1.0 (+fetch_web)",
    "Accept": "text/html, application/xhtml+xml, text/plain, application/json, application/pdf;q=0.8, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}

SIZE_BYTES_MAX = 5 * 1024 * 1024

PDF_SIZE_BYTES_MAX = 25 * 1024 * 1024
"""Maximum size of a PDF file, most of which are pictures; its text is bounded elsewhere."""

GZIP, GZIP_BEGIN = 31, b"\x1f\x8b"

ENCODINGS = {"": None, "identity": None, "gzip": GZIP, "x-gzip": GZIP, "deflate": 15}
"""zlib's window bits by Content-Encoding, None for no compression; no others are requested."""

OTHER_ENCODINGS = frozenset({"aes128gcm", "br", "compress", "dcb", "dcz", "exi", "pack200-gzip", "x-compress", "zstd"})
"""The other registered ones. Whatever else a server says, such as `utf-8`, has compressed nothing."""

ACCEPT_ENCODING = "gzip, deflate"


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    url: str
    status: int
    content_type: str
    """Lower case without parameters; empty if the server did not send it."""
    charset: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches URLs; keeps no cookies, connections or DNS results between fetches.

    The redirects of one fetch share their cookies: publishers redirect a reader without them in a circle.
    """

    allow: AllowList = AllowList()
    resolve: Resolve = resolve_name
    ports: frozenset[int] = PORTS
    fetch_s: float = FETCH_S

    async def fetch(self, url: str) -> FetchedResponse:
        """Fetch a response of any status. Raises ToolFailed."""
        await load_http_client()
        from aiohttp import CookieJar

        cookies = CookieJar()
        with fetch_errors(self.fetch_s):
            async with asyncio.timeout(self.fetch_s):
                for _ in range(REDIRECTS_MAX + 1):
                    answer = await self._get_once(parse_target(url, self.allow, self.ports), cookies)
                    if isinstance(answer, FetchedResponse):
                        return answer
                    url = answer
        raise ToolFailed(f"more than {REDIRECTS_MAX} redirects")

    async def _get_once(self, target: Target, cookies: CookieJar) -> FetchedResponse | str:
        from services.runtime.net.pinned_connection import pinned_session

        addresses = await checked_addresses(target, self.resolve, self.allow)
        async with (
            pinned_session(addresses, cookies) as session,
            session.get(target.url, headers=HEADERS, allow_redirects=False) as response,
        ):
            location = response.headers.get("Location")
            if response.status in REDIRECTS and location:
                try:
                    return str(target.url.join(keep_encoding(_decode_location(location))))
                except ValueError as error:
                    raise ToolFailed("the answer redirects to something that is no URL") from error
            media_type = response.content_type.lower() if "Content-Type" in response.headers else ""
            body = await read_body(
                response.content.iter_chunked(PIECE_BYTES),
                response.headers.get("Content-Encoding", ""),
                PDF_SIZE_BYTES_MAX if media_type.endswith("pdf") else SIZE_BYTES_MAX,
            )
            return FetchedResponse(str(target.url), response.status, media_type, response.charset, body)


def _decode_location(text: str) -> str:
    """Return an address of a header, whose bytes are UTF-8 or else Latin-1; aiohttp keeps the latter as surrogates."""
    data = text.encode(errors="surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


@contextmanager
def fetch_errors(fetch_s: float) -> Generator[None]:
    """Convert every error of a fetch to ToolFailed."""
    import aiohttp

    try:
        yield
    except TargetRefused as error:
        raise ToolFailed(str(error)) from error
    except TimeoutError as error:
        raise ToolFailed(f"no answer within {fetch_s:g} s") from error
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise ToolFailed("the connection is not safe: the server's TLS certificate or handshake is wrong") from error
    except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, ConnectionError) as error:
        raise ToolFailed("the server cannot be reached") from error
    except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        raise ToolFailed("the server's answer is not valid HTTP") from error
    except (aiohttp.ClientError, OSError) as error:
        raise ToolFailed(f"the fetch failed: {type(error).__name__}") from error


async def read_body(pieces: AsyncIterator[bytes], encoding: str, size_bytes_max: int = SIZE_BYTES_MAX) -> bytes:
    """Read and decompress a body. Raises ToolFailed if it exceeds `size_bytes_max` or cannot be decompressed."""
    names = [name.strip() for name in encoding.lower().split(",")]
    packed = [name for name in names if ENCODINGS.get(name) or name in OTHER_ENCODINGS]
    if len(packed) > 1 or OTHER_ENCODINGS.intersection(packed):
        raise ToolFailed(f"the answer is packed as {encoding!r}, which was not asked for")
    unpacker, body = _Unpacker(ENCODINGS[packed[0]] if packed else None), bytearray()
    async for piece in pieces:
        body += unpacker.feed(piece, size_bytes_max + 1 - len(body))
        if len(body) > size_bytes_max:
            raise ToolFailed(f"the answer is larger than {size_bytes_max // (1024 * 1024)} MiB")
    if not unpacker.is_complete:
        raise ToolFailed("the answer's compressed data ends too early")
    return bytes(body)


class _Unpacker:
    def __init__(self, window_bits: int | None) -> None:
        self._zlib = None if window_bits is None else zlib.decompressobj(window_bits)
        self._is_gzip = window_bits == GZIP
        self._is_first = True
        self._is_padding = False
        self._packed_bytes = 0
        self._behind = b""
        """A single byte after the end, which may begin another file."""

    @property
    def is_complete(self) -> bool:
        return self._zlib is None or self._zlib.eof or not self._packed_bytes

    def feed(self, piece: bytes, size_bytes_max: int) -> bytes:
        """Return the decompressed output; after `size_bytes_max` bytes of output, feed nothing more."""
        if self._zlib is None:
            return piece[:size_bytes_max]
        self._packed_bytes += len(piece)
        # Some servers send deflate without zlib's header; its first byte tells (RFC 1950, compression method 8).
        if self._is_first and piece:
            self._is_first = False
            if piece[0] & 0x0F != 8 and piece[:1] != GZIP_BEGIN[:1]:
                self._zlib = zlib.decompressobj(-15)
        try:
            return self._unpack(piece, size_bytes_max)
        except zlib.error as error:
            raise ToolFailed("the answer's compressed data is damaged") from error

    def _unpack(self, piece: bytes, size_bytes_max: int) -> bytes:
        assert self._zlib is not None
        unpacker, unpacked = self._zlib, b""
        while piece and len(unpacked) < size_bytes_max and not self._is_padding:
            if unpacker.eof:
                # Concatenated gzip files count as one (RFC 1952, 2.2); anything else after the end is padding.
                piece, self._behind = self._behind + piece, b""
                if len(piece) < len(GZIP_BEGIN):
                    self._behind = piece
                    break
                self._is_padding = not (self._is_gzip and piece.startswith(GZIP_BEGIN))
                if self._is_padding:
                    break
                unpacker = self._zlib = zlib.decompressobj(GZIP)
            unpacked += unpacker.decompress(piece, size_bytes_max - len(unpacked))
            piece = unpacker.unused_data
        return unpacked


async def load_http_client() -> None:
    """Import aiohttp off the loop, so that later imports do not block."""
    await asyncio.to_thread(importlib.import_module, "aiohttp")
