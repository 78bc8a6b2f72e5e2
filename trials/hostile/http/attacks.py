"""Endless HTTP of peers without a credential: over one connection, or byte by byte over many."""

import itertools
from collections.abc import Callable, Iterator

START = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\n"
HEAD = START + b"Content-Type: application/json\r\n"
FORM = b"POST /api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n"

Attack = Callable[[], Iterator[bytes]]


def endless(first: bytes, rest: bytes) -> Attack:
    return lambda: itertools.chain([first], itertools.repeat(rest))


ATTACKS: dict[str, Attack] = {
    "connections": lambda: iter(()),
    "one long header": endless(START + b"X-A: ", b"a" * 4096),
    "many headers": endless(START, b"X-A: a\r\n" * 500),
    "a long address": endless(b"GET /", b"a" * 4096),
    "line breaks": endless(b"", b"\r\n" * 2048),
    "no HTTP": endless(b"", b"\x16\x03\x01\xff" * 1024),
    "bodies": endless(HEAD + b"Content-Length: 4000000\r\n\r\n", b"x" * 4096),
    "chunks of a byte": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 500),
    "extensions of chunks": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"e" * 4096),
    "forms": endless(FORM + b"Transfer-Encoding: chunked\r\n\r\n", b"6\r\n--B\r\n\r\n" * 300),
    "requests": endless(b"", b"GET /api/agents HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50),
    "requests of no credential": endless(b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50),
    "unknown paths": endless(b"", b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50),
}

SLOW: dict[str, bytes] = {
    "slow heads": START + b"X-A: " + b"a" * 8000,
    "slow bodies": HEAD + b"Content-Length: 8000\r\n\r\n" + b" " * 8000,
    "slow forms": FORM + b"Content-Length: 8000\r\n\r\n" + b" " * 8000,
}
"""Bytes that each of SLOW_CONNECTIONS sends, one at a time."""

SLOW_CONNECTIONS = 500
