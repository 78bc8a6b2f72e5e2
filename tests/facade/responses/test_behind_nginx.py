"""A long silent tool behind nginx with its defaults, on a smaller time scale: nginx's timeout of 60 s is 1 s here, the
heartbeat interval of 15 s is 0.25 s, and ten minutes are 2 s."""

import asyncio
import json
import shutil
from asyncio.subprocess import STDOUT
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from headrace.errors import Interrupted
from headrace.v1 import agent_pb2
from tests.support.facade.fronts import Timing
from tests.support.facade.scripted import RUN, Script, answering, complete, delta, opening, read_all_frames, suite
from tests.support.programs import run_to_end, starting

CONFIG = """
daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; proxy_temp_path {folder}/proxy; client_body_temp_path {folder}/body;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen unix:{folder}/nginx.sock;
        location / {{ proxy_pass {url}; proxy_read_timeout 1s; }}
    }}
}}
"""
SILENCE_S = 2.0


@asynccontextmanager
async def nginx(folder: Path, url: str) -> AsyncGenerator[aiohttp.ClientSession]:
    """Yield a session that reaches `url` through nginx with its defaults."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        pytest.skip("nginx is not installed: streams behind it are NOT tested")
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, url=url))
    command = (program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"))
    async with starting(*command) as process:
        while not await _is_listening(folder / "nginx.sock"):
            assert process.returncode is None
            await asyncio.sleep(0.01)
        connector = aiohttp.UnixConnector(str(folder / "nginx.sock"))
        async with aiohttp.ClientSession("http://nginx", connector=connector) as http:
            yield http
        process.terminate()
        await process.wait()


async def _is_listening(path: Path) -> bool:
    with suppress(FileNotFoundError, ConnectionRefusedError):  # bound comes before listening
        _, writer = await asyncio.open_unix_connection(path)
        writer.close()
        return True
    return False


@pytest.mark.parametrize("heartbeat_s", [0.25, 60.0])
async def test_heartbeats_keep_a_silent_stream_open_behind_nginx(tmp_path: Path, heartbeat_s: float) -> None:
    steps = [
        *opening(),
        delta(4, tool_start=agent_pb2.ToolStart(tool_id="t", run_id=RUN)),
        SILENCE_S,
        delta(5, tool_result=agent_pb2.ToolResult(tool_id="t", result="done", ok=True)),
        complete(6),
    ]
    async with (
        suite(tmp_path, Script(query=steps), timing=Timing(heartbeat_s)) as facade,
        nginx(tmp_path, facade.url) as http,
        http.post("/api/query", json={"message": "hi"}) as response,
    ):
        for seq in (1, 2, 3, 4):  # not held back by nginx: X-Accel-Buffering says so
            async with asyncio.timeout(SILENCE_S / 2):
                assert (await response.content.readuntil(b"\n\n")).startswith(b"id: %d\n" % seq)
        if heartbeat_s > SILENCE_S:  # the proof that nginx would have hung up
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
            return
        frames = await read_all_frames(response)
    assert [frame.id for frame in frames] == ["5", "6", None]


PACKAGE = "@microsoft/fetch-event-source@2.0.1"
PIECES = ["\n\n", " ", "水", "\u2028", "data: [DONE]\n\n"]
INSTALL_TIMEOUT_S = 600.0


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Install the client into a folder and return it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed: @microsoft/fetch-event-source is NOT tested")
    arguments = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--prefix", str(tmp_path))
    code, output = None, b"it took too long"
    with suppress(TimeoutError):
        command = ("npm", "install", *arguments, PACKAGE)
        code, output, _ = await run_to_end(*command, cwd=tmp_path, stderr=STDOUT, timeout_s=INSTALL_TIMEOUT_S)
    if code != 0:
        pytest.skip(f"npm cannot install: {PACKAGE} is NOT tested: {output.decode()[-300:]}")
    shutil.copy(Path(__file__).with_name("fetch_event_source.mjs"), tmp_path)
    return tmp_path


async def test_fetch_event_source_reads_a_query_and_resumes_a_cut_run(folder: Path) -> None:
    steps = answering(*PIECES)
    script = Script(query=steps, attaches=[[*steps[:6], Interrupted("cut")], steps[6:]])
    async with suite(folder, script) as facade:
        code, output, _ = await run_to_end("node", "fetch_event_source.mjs", facade.url, RUN, cwd=folder, stderr=STDOUT)
        last_seqs = [request.last_seq for request in facade.script.requests if hasattr(request, "last_seq")]
    assert code == 0, output.decode()
    read = json.loads(output)
    for events in (read["query"], read["attach"]):
        assert [event["data"]["delta"] for event in events if event["data"]["type"] == "content.delta"] == PIECES
        assert [event["id"] for event in events] == [str(event["data"]["seq"]) for event in events]
        assert {event["event"] for event in events} == {"message"}
    assert last_seqs == [0, 6]
