"""h2spec: the requirements of RFC 9113 and RFC 7541 on a server, in 145 cases, against a server that answers
everything.
"""

import asyncio
import shutil
from asyncio.subprocess import STDOUT
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from services.runtime.calls.ends import Compressed, Oversized
from services.runtime.calls.metadata import Headers
from services.runtime.http2.limits import DEFAULTS
from services.runtime.http2.server.connection import ServerConnection, ServerState
from services.runtime.http2.server.listener import bind_address
from services.runtime.http2.stream import Stream
from tests.support.programs import run_to_end

H2SPEC = Path(__file__).parent / "h2spec"
"""A Go module of its own, which pins the version."""

BUILD_TIMEOUT_S = 1200.0
"""h2spec is compiled the first time."""

SILENCE_S, SILENCE_S_AGAIN = 2, 20
"""The time after which h2spec regards the server as silent; and for sections that are repeated, on a busy machine."""

_LIST = "its header list is larger than the 16 KiB that our settings allow"
_TABLE = "it makes a table, which our settings forbid (https://www.rfc-editor.org/rfc/rfc7541#section-6.3)"
EXCEPTIONS = {
    "Sends multiple CONTINUATION frames preceded by a HEADERS frame": _LIST,
    "Sends a dynamic table size update": _TABLE,
    "Sends multiple dynamic table size update": _TABLE,
}
"""Cases that fail, and why that is acceptable."""

pytestmark = pytest.mark.nightly

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOTICE: Go is not installed: h2spec is not tried")

MESSAGE = b"a message"


def _unanswered(_: ServerConnection, __: Stream, ___: Headers) -> None:
    """Ignore the start of a request: it is answered once it is complete."""


class Plain(ServerConnection):
    """Answers every request without looking at it."""

    def __init__(self, server: ServerState) -> None:
        super().__init__(_unanswered, server)

    def on_remote_end(self, stream: Stream) -> None:
        self.send_headers(stream.id, [(b":status", b"200")])
        stream.send(MESSAGE)
        stream.end_local([(b"grpc-status", b"0")])

    def on_bad_message(self, stream: Stream, error: Oversized | Compressed) -> None:
        # What h2spec sends is no message.
        self.on_remote_end(stream)


@asynccontextmanager
async def plain_server() -> AsyncGenerator[int]:
    """Run the server; yield its port."""
    host = ServerState(1024 * 1024, 0, DEFAULTS)
    (listening,), port = bind_address("127.0.0.1:0")
    server = await asyncio.get_running_loop().create_server(lambda: Plain(host), sock=listening)
    try:
        yield port
    finally:
        server.close()
        await asyncio.gather(*(connection.close() for connection in host.connections))


@needs_go
async def test_every_case_passes_except_those_with_a_reason(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    async with asyncio.timeout(BUILD_TIMEOUT_S), plain_server() as port:
        cases, output = await _try_cases(port, report, SILENCE_S)
        unexpected = [case for case in cases if _is_failed(case) and _name(case) not in EXCEPTIONS]
        sections = {case.get("package", "") for case in unexpected}
        repeated, output_again = await _try_cases(port, report, SILENCE_S_AGAIN, *sections) if sections else ([], "")
    assert len(cases) > 140, output
    assert not [case for case in cases if case.find("skipped") is not None]
    failed = {_name(case) for case in cases if _is_failed(case)} - {_name(case) for case in unexpected}
    assert failed | {_name(case) for case in repeated if _is_failed(case)} == set(EXCEPTIONS), output + output_again


async def _try_cases(port: int, report: Path, silence_s: int, *sections: str) -> tuple[list[ElementTree.Element], str]:
    """Run the cases of these sections, or all; return them with h2spec's output."""
    words = ("-h", "127.0.0.1", "-p", str(port), "-o", str(silence_s), "-j", str(report))
    command = ("go", "tool", "h2spec", *sections, *words)
    _, output, _ = await run_to_end(*command, cwd=H2SPEC, stderr=STDOUT, timeout_s=1200)
    return list(ElementTree.parse(report).iter("testcase")), output.decode()


def _is_failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _name(case: ElementTree.Element) -> str:
    return case.get("classname", "")
