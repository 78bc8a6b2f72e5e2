"""@microsoft/fetch-event-source, in Node, reads our streams and resumes them by its own Last-Event-ID."""

import asyncio
import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.errors import Interrupted
from tests.support.facade.scripted import RUN, Script, answering, suite

PACKAGE = "@microsoft/fetch-event-source@2.0.1"
PIECES = ["\n\n", " ", "水", "\u2028", "data: [DONE]\n\n"]
INSTALL_TIMEOUT_S = 600.0


async def run(*arguments: str, cwd: Path) -> tuple[int | None, bytes]:
    """A program's exit code and what it printed; it is given what is installed in `cwd`."""
    process = await asyncio.create_subprocess_exec(
        *arguments, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, told


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder with the client in it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed: @microsoft/fetch-event-source is NOT tested")
    arguments = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--prefix", str(tmp_path))
    code, told = None, b"it took too long"
    with suppress(TimeoutError):
        async with asyncio.timeout(INSTALL_TIMEOUT_S):
            code, told = await run("npm", "install", *arguments, PACKAGE, cwd=tmp_path)
    if code != 0:
        pytest.skip(f"npm cannot install: {PACKAGE} is NOT tested: {told.decode()[-300:]}")
    shutil.copy(Path(__file__).with_name("fetch_event_source.mjs"), tmp_path)
    return tmp_path


async def test_it_reads_a_query_and_resumes_a_run_where_it_was_cut(folder: Path) -> None:
    steps = answering(*PIECES)
    script = Script(query=steps, attaches=[[*steps[:6], Interrupted("cut")], steps[6:]])
    async with suite(folder, script) as facade:
        code, told = await run("node", "fetch_event_source.mjs", facade.url, RUN, cwd=folder)
        asked = [request.last_seq for request in facade.script.requests if hasattr(request, "last_seq")]
    assert code == 0, told.decode()
    read = json.loads(told)
    for events in (read["query"], read["attach"]):
        assert [event["data"]["delta"] for event in events if event["data"]["type"] == "content.delta"] == PIECES
        assert [event["id"] for event in events] == [str(event["data"]["seq"]) for event in events]
        assert {event["event"] for event in events} == {"message"}
    assert asked == [0, 6]
