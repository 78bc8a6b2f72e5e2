"""Requests that no honest client sends, byte by byte, to both facades: each is refused once, and no part of it is
executed.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.v1 import agent_pb2
from services.facade import service
from services.facade.config import Config
from services.runtime.auth.callers import FACADE
from services.runtime.process.config import ProcessSettings, ServerSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import serving_grpc
from tests.support.facade.fronts import PEERS, Front, Timing, embedded, gateway
from tests.support.facade.scripted import Script, ScriptedMemory, answering, make_peer_services, suite
from tests.support.issuing import key_settings
from tests.support.raw_http import sending

BODY = b'{"message":"a","stream":false}'
WHOLE = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
"""The body in chunks."""

KEPT = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEAD = KEPT + b"Connection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"
SIZED = HEAD + b"Content-Length: %d\r\n" % len(BODY)
NEXT = b"GET /api/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""What follows a body that a proxy may have read differently; no client has sent it as a request."""

BAD = frozenset({400})
BAD_OR_NOT_KNOWN = frozenset({400, 501})
BARE_LF = frozenset({400, 200})
"""deploy/gateway accepts a bare LF as a line end in the head, as RFC 9112 allows in section 2.2; Go's net/http has no
setting against it.
"""
TOO_LARGE = frozenset({400, 431})

CASES = {
    "chunk size that is none": (CHUNKED + b"\r\nzz\r\n" + BODY, BAD),
    "chunk size of 72 bits": (CHUNKED + b"\r\nFFFFFFFFFFFFFFFFFF\r\n" + BODY, BAD),
    "negative chunk size": (CHUNKED + b"\r\n-1\r\n" + BODY, BAD),
    "chunk size with 0x": (CHUNKED + b"\r\n0x" + WHOLE, BAD),
    "chunk without an end": (CHUNKED + b"\r\n" + WHOLE.replace(b"\r\n0", b"xx0"), BAD),
    "chunk size before a bare LF": (CHUNKED + b"\r\n" + WHOLE.replace(b"\r\n", b"\n", 1), BAD),
    "chunk before a bare LF": (CHUNKED + b"\r\n" + WHOLE.replace(BODY + b"\r\n", BODY + b"\n"), BAD),
    "last chunk before a bare LF": (CHUNKED + b"\r\n" + WHOLE.replace(b"\r\n0\r\n", b"\r\n0\n"), BAD),
    "bare LF in a chunk's extension": (CHUNKED + b"\r\n" + WHOLE.replace(b"\r\n", b";a\nb\r\n", 1), BAD),
    "request line before a bare LF": (SIZED.replace(b"1.1\r\n", b"1.1\n") + b"\r\n" + BODY, BARE_LF),
    "header before a bare LF": (SIZED.replace(b"localhost\r\n", b"localhost\n") + b"\r\n" + BODY, BARE_LF),
    "head before a bare LF": (SIZED + b"\n" + BODY, BARE_LF),
    "length, and chunks behind a bare LF": (
        KEPT + b"Content-Length: %d\r\nX-A: a\nTransfer-Encoding: chunked\r\n\r\n" % len(WHOLE) + WHOLE + NEXT,
        BARE_LF,
    ),
    "chunks of a form": (
        b"POST /api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        BAD,
    ),
    "length, then chunks": (
        KEPT + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(WHOLE) + WHOLE + NEXT,
        # deploy/gateway answers the chunked request and closes the connection, which RFC 9112 allows in section 6.1.
        frozenset({400, 200}),
    ),
    "chunks, then length": (
        KEPT + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + WHOLE + NEXT,
        frozenset({400, 200}),
    ),
    "two lengths": (KEPT + b"Content-Length: 30\r\nContent-Length: 31\r\n\r\n" + BODY + NEXT, BAD),
    "list of lengths": (KEPT + b"Content-Length: 30, 31\r\n\r\n" + BODY + NEXT, BAD),
    "negative length": (HEAD + b"Content-Length: -1\r\n\r\n" + BODY, BAD),
    "length with a sign": (HEAD + b"Content-Length: +30\r\n\r\n" + BODY, BAD),
    "length in hex": (HEAD + b"Content-Length: 0x1e\r\n\r\n" + BODY, BAD),
    "length of 77 bits": (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY, BAD),
    "coding identity": (HEAD + b"Transfer-Encoding: identity\r\n\r\n" + BODY, BAD_OR_NOT_KNOWN),
    "coding unknown": (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + WHOLE, BAD_OR_NOT_KNOWN),
    "coding after chunks": (HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + WHOLE, BAD_OR_NOT_KNOWN),
    "coding before chunks": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + WHOLE, BAD_OR_NOT_KNOWN),
    "chunks twice": (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n" + WHOLE, BAD_OR_NOT_KNOWN),
    "coding after a tab": (HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + WHOLE, BAD),
    "space before a colon": (HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + WHOLE, BAD),
    "NUL in a value": (SIZED + b"X-A: a\0b\r\n\r\n" + BODY, BAD),
    "CR in a value": (SIZED + b"X-A: a\rb\r\n\r\n" + BODY, BAD),
    "name that is none": (SIZED + b"X(A): a\r\n\r\n" + BODY, BAD),
    "long header": (SIZED + b"X-A: " + b"a" * 100_000 + b"\r\n\r\n" + BODY, TOO_LARGE),
    "many headers": (SIZED + b"".join(b"X-%d: a\r\n" % n for n in range(5000)) + b"\r\n" + BODY, TOO_LARGE),
    "long address": (b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a" * 100_000), TOO_LARGE),
    "two hosts": (SIZED + b"Host: 127.0.0.1\r\n\r\n" + BODY, BAD),
    "no host": (SIZED.replace(b"Host: localhost\r\n", b"") + b"\r\n" + BODY, frozenset({400, 403})),
    "host with a user": (SIZED.replace(b"localhost", b"x@localhost") + b"\r\n" + BODY, frozenset({400, 403})),
    "expectation unknown": (SIZED + b"Expect: 200-ok\r\n\r\n" + BODY, frozenset({417})),
    "version unknown": (SIZED.replace(b"1.1", b"9.9") + b"\r\n" + BODY, frozenset({400, 505})),
    "half a JSON": (HEAD + b'Content-Length: 5\r\n\r\n{"a":', BAD),
    "text": (SIZED.replace(b"application/json", b"text/plain") + b"\r\n" + BODY, BAD),
    "two types": (SIZED + b"Content-Type: application/json\r\n\r\n" + BODY, BAD),
}
"""The bytes sent, and the statuses allowed in the response."""


async def exchange(url: str, sent: bytes) -> bytes:
    """Return everything that is answered until the server closes the connection."""
    answer = b""
    with suppress(ConnectionError):  # it closed before it had read all, which resets the connection
        async with sending(url, sent) as reader:
            while piece := await reader.read(1 << 16):
                answer += piece
    return answer


async def read_first_line(url: str, head: bytes) -> bytes:
    """Return the first line of the response to a head whose body never comes."""
    async with sending(url, head) as reader:
        return await reader.readline()


async def test_each_hostile_request_is_refused_once_and_nothing_in_it_is_executed(tmp_path: Path, front: Front) -> None:
    with capture_logs() as logs:
        async with suite(tmp_path, Script(query=answering("x")), front=front) as facade:
            for name, (sent, statuses) in CASES.items():
                answer = await exchange(facade.url, sent)
                response_statuses = [int(status) for status in re.findall(rb"HTTP/1\.\d (\d{3})", answer)]
                assert len(response_statuses) == 1, (name, answer)
                assert response_statuses[0] in statuses, name
                is_served = response_statuses == [200]
                queries = [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]
                assert len(queries) == is_served, name
                facade.script.requests.clear()
            answer = await exchange(facade.url, SIZED + b"\r\n" + BODY)
            assert answer.startswith(b"HTTP/1.1 200 ")
    assert [line for line in logs if line["log_level"] in ("error", "critical")] == []


@asynccontextmanager
async def serving_with_keys(folder: Path, front: Front, script: Script) -> AsyncGenerator[str]:
    """Run a facade that requires API keys; yield its URL."""
    auth = key_settings(folder, good="tenant/user")
    address = f"unix:{folder}/peer.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(300))
        settings = ServerSettings(listen=address, drain_s=0, auth=auth)
        await stack.enter_async_context(serving_grpc(settings, make_peer_services(script, ScriptedMemory())))
        channel = await stack.enter_async_context(open_channel(address, build_caller_metadata(auth, FACADE)))
        config = Config(port=0, process=ProcessSettings(drain_s=0, auth=auth))
        facade = await stack.enter_async_context(service.serve(config, dict.fromkeys(PEERS, channel)))
        if front is embedded:
            yield f"http://{facade}"
        else:
            env = {"HEADRACE_INTERNAL_TOKEN": auth.internal_token}
            running = gateway(dict.fromkeys(PEERS, address), Timing(), env, FACADE_ADDRESS=facade)
            yield await stack.enter_async_context(running)


@pytest.mark.parametrize("credential", [b"", b"X-API-Key: wrong\r\n", b"Authorization: Bearer wrong\r\n"])
async def test_the_credential_is_checked_before_the_body(tmp_path: Path, front: Front, credential: bytes) -> None:
    script = Script(query=answering("x"))
    async with serving_with_keys(tmp_path, front, script) as url:
        for kind in (b"application/json", b"multipart/form-data; boundary=B", b"text/plain"):
            head = HEAD.replace(b"application/json", kind) + credential
            line = await read_first_line(url, head + b"Content-Length: 1000000\r\n\r\n")
            assert line.startswith(b"HTTP/1.1 401 ")
        assert script.requests == []
        for _ in range(2):
            answer = await exchange(url, SIZED + b"X-API-Key: good\r\n\r\n" + BODY)
            assert answer.startswith(b"HTTP/1.1 200 ")
