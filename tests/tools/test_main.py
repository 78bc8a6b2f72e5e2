"""python -m services.tools as a process: it starts, serves and stops, and refuses to run without a required sandbox."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.streams import reading
from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.runtime.rpc.channels import open_channel
from services.tools.__main__ import choose_sandbox
from services.tools.config import Config
from services.tools.sandbox.tiers import Sandbox
from tests.support.programs import run_to_end
from tests.support.rights import list_wide, make_wide
from tests.support.tools.suite import CHAT, RUN

CALL = tools_pb2.ExecuteRequest(
    run_id=RUN, tool_call_id="1", tool_name="_bash_", arguments='{"command": "echo hello | tee made"}', chat_id=CHAT
)
BROKEN = Sandbox(None, "this kernel has no Landlock")


async def test_the_service_starts_serves_and_stops(tmp_path: Path) -> None:
    make_wide(tmp_path, tmp_path / "workspaces")
    socket = f"unix:{tmp_path}/tools.sock"
    settings = {
        "HEADRACE_TOOLS_LISTEN": socket,
        "HEADRACE_DATA_DIR": str(tmp_path),
        "HEADRACE_TOOLS_SANDBOX": "process",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, *("-m", "services.tools"), env={**os.environ, **settings}, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(300):
        async with open_channel(socket) as channel:
            stub = tools_pb2_grpc.ToolServiceStub(channel)
            listed = await stub.ListTools(tools_pb2.ListToolsRequest(), wait_for_ready=True)
            async with reading(stub.Execute(CALL)) as deltas:
                deltas_received = [delta async for delta in deltas]
        process.send_signal(signal.SIGTERM)
        _, logged = await process.communicate()
    assert list_wide(tmp_path) == []
    assert (tmp_path / "workspaces" / CHAT / "made").exists()
    assert {"_bash_", "convert_units"} <= {tool.name for tool in listed.tools}
    assert [delta.output.delta for delta in deltas_received[:-1]] == ["hello\n"]
    assert deltas_received[-1].result.ok
    assert process.returncode == 0
    events = [json.loads(line)["event"] for line in logged.decode().splitlines() if line.startswith("{")]
    assert "sandbox found" in events


def test_a_required_sandbox_that_does_not_work_prevents_the_start() -> None:
    with pytest.raises(OSError, match="no Landlock"):
        choose_sandbox(Config(sandbox="process"), BROKEN)
    with pytest.raises(OSError, match="the bubblewrap sandbox was demanded"):
        choose_sandbox(Config(sandbox="bubblewrap"), BROKEN)
    assert choose_sandbox(Config(), BROKEN) == BROKEN


def test_an_allow_list_without_bubblewrap_is_reported_with_the_reason() -> None:
    config = Config(network_allow="127.0.0.1:9200")
    with capture_logs() as logs:
        choose_sandbox(config, Sandbox("process", "bubblewrap: bwrap is not installed"))
    [line] = [line for line in logs if line["event"] == "commands have no network"]
    assert line["problem"] == "HEADRACE_TOOLS_NETWORK_ALLOW needs bubblewrap; bubblewrap: bwrap is not installed"


def test_the_operators_paths_reach_the_sandbox() -> None:
    config = Config(bash_working_directory=Path("/srv/shared"), bash_allowed_paths="/srv/a, /srv/b,")
    found = choose_sandbox(config, Sandbox("process"))
    assert (found.readable, found.writable) == (("/srv/a", "/srv/b"), ("/srv/shared",))


def test_an_unknown_sandbox_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="ALLOW_UNSANDBOXED=1"):
        Config(sandbox="none")
    with pytest.raises(ValueError, match="expected one of auto, process, bubblewrap, external, none"):
        Config(sandbox="docker")


async def test_commands_start_while_other_calls_start_and_end(tmp_path: Path) -> None:
    """gRPC's fork handlers, which are on by default, kill some children before they become commands."""
    socket = f"unix:{tmp_path}/tools.sock"
    settings = {"HEADRACE_TOOLS_LISTEN": socket, "HEADRACE_DATA_DIR": str(tmp_path)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *("-m", "services.tools"), env={**inherited, **settings}, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(300):
        async with open_channel(socket) as channel:
            stub = tools_pb2_grpc.ToolServiceStub(channel)
            await stub.ListTools(tools_pb2.ListToolsRequest(), wait_for_ready=True)

            async def call() -> bool:
                async with reading(stub.Execute(CALL)) as deltas:
                    return [delta.result.ok async for delta in deltas][-1]

            results = [ok for _ in range(6) for ok in await asyncio.gather(*(call() for _ in range(8)))]
        process.send_signal(signal.SIGTERM)
        _, logged = await process.communicate()
    assert results == [True] * 48
    assert b"fork" not in logged


HEAVY = ("aiohttp", "reportlab", "pptx", "fontTools", "numpy", "pandas", "matplotlib", "scipy", "openpyxl")
"""Libraries that fetches, reports and data work need, and nothing else."""


async def test_startup_imports_no_library_that_only_some_calls_need() -> None:
    code = f"import sys, services.tools.server; print([name for name in {HEAVY} if name in sys.modules])"
    _, output, _ = await run_to_end(sys.executable, "-c", code)
    assert output.decode() == "[]\n"
