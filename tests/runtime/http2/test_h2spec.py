"""h2spec: what RFC 9113 and RFC 7541 say of a server, in 145 cases, against a server that answers everything."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.runtime.http2.plain import plain_server

H2SPEC = Path(__file__).parent / "h2spec"
"""A Go module of its own, which names the version."""

BUILD_TIMEOUT_S = 300.0
"""h2spec is compiled where it never was."""

SILENCE_S = "2"
"""After which h2spec takes the server to say nothing."""

UNCOUNTED = "gRPC's messages say how long they are; h2, which would count, does not see DATA frames"

_LENGTH = 'Sends a HEADERS frame with the "content-length" header field which does not equal the '
EXCEPTIONS = {
    _LENGTH + "DATA frame payload length": UNCOUNTED,
    _LENGTH + "sum of the multiple DATA frames payload length": UNCOUNTED,
}
"""Cases that fail, and why they may."""

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOTICE: Go is not installed: h2spec is not tried")


@needs_go
async def test_every_case_passes_but_those_with_a_reason(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    async with asyncio.timeout(BUILD_TIMEOUT_S), plain_server() as port:
        process = await asyncio.create_subprocess_exec(
            *("go", "tool", "h2spec", "-h", "127.0.0.1", "-p", str(port), "-o", SILENCE_S, "-j", str(report)),
            cwd=H2SPEC,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {_name(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
    assert len(cases) > 140, said.decode()
    assert not [case for case in cases if case.find("skipped") is not None]
    assert failed == set(EXCEPTIONS), said.decode()


def _name(case: ElementTree.Element) -> str:
    return case.get("classname", "")
