"""kill -9 of the tools service between every two steps of a call: a once tool ran at most once, and its state is
reported truly afterwards. The service is a process, the tool a real command, its effect a line in a file.
"""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.runtime.rpc.channels import open_channel
from tests.support.programs import starting
from tests.support.tools.suite import CHAT, RUN, Serve
from tests.tools.execution.crashing import WRITES

KEY = f"{RUN}/call_1/0123456789abcdef"

COUNT = """
echo $$ > pid
touch begun
while [ ! -e go ]; do sleep 0.01; done
echo acted >> counter
touch acted
while [ ! -e end ]; do sleep 0.01; done
"""
"""The files go and end let it act, and end."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Make the call's workspace, and one counting tool for each effect."""
    tools = [
        {"name": effect, "effect": effect, "command": ["bash", "count.sh"]} for effect in ("once", "idempotent", "read")
    ]
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/count.sh").write_text(COUNT)
    (tmp_path / "tools/count.backend").write_text(json.dumps({"tools": tools}))
    workspace = tmp_path / "workspaces" / CHAT
    workspace.mkdir(parents=True)
    return workspace


@asynccontextmanager
async def calling(folder: Path, tool: str, step: int = 0) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a process that executes the call inside the block; it must be killed, and its answer is lost."""
    command = (sys.executable, "-m", "tests.tools.execution.crashing", str(folder), str(step))
    async with (
        asyncio.timeout(300),
        starting(*command, stderr=DEVNULL) as process,
        open_channel(f"unix:{folder}/tools.sock") as channel,
    ):
        stub = tools_pb2_grpc.ToolServiceStub(channel)
        call = stub.Execute(execute(tool), wait_for_ready=True)
        yield process
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        assert await process.wait() == -signal.SIGKILL


def execute(tool: str) -> tools_pb2.ExecuteRequest:
    return tools_pb2.ExecuteRequest(
        run_id=RUN, tool_call_id="call_1", tool_name=tool, arguments="{}", effect_key=KEY, chat_id=CHAT
    )


async def wait_for_file(path: Path) -> None:
    async with asyncio.timeout(200):
        while not path.exists():  # noqa: ASYNC240 - nothing tells
            await asyncio.sleep(0.005)


async def wait_for_exit(pid: int) -> None:
    """Wait until the command has ended, which must not outlive its service."""
    async with asyncio.timeout(200):
        while b"count.sh" in await asyncio.to_thread(command_line, pid):
            await asyncio.sleep(0.005)


def command_line(pid: int) -> bytes:
    """Return the process's command line; empty if it has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def count_effects(workspace: Path) -> int:
    counter = workspace / "counter"
    return len(counter.read_text().splitlines()) if counter.exists() else 0


async def check_after(serve: Serve, tool: str) -> tuple[str, str, str]:
    """Return the state a new service reports for the call, the error of executing it again and the state after that."""
    async with serve() as suite:
        request = tools_pb2.CheckEffectRequest(effect_key=KEY, tool_name=tool, chat_id=CHAT)
        before = await suite.stub.CheckEffect(request)
        _, outcome = await suite.execute(tool, "{}", effect_key=KEY)
        after = await suite.stub.CheckEffect(request)
    error = "" if outcome.ok else json.loads(outcome.result)["error"]
    assert before.HasField("result") == (before.state == "done")
    return before.state, error, after.state


@pytest.mark.parametrize(
    ("step", "times", "states", "times_after"),
    [
        pytest.param(1, 0, ("not_done", "", "done"), 1, marks=pytest.mark.nightly),
        (2, 0, ("not_done", "", "done"), 1),
        (3, 0, ("unknown", "unknown", "unknown"), 0),
        (4, 1, ("unknown", "unknown", "unknown"), 1),
        (5, 1, ("done", "", "done"), 1),
        pytest.param(WRITES + 1, 1, ("done", "", "done"), 1, marks=pytest.mark.nightly),
    ],
)
async def test_a_once_tool_acts_at_most_once_wherever_the_service_is_killed(
    serve: Serve, workspace: Path, tmp_path: Path, step: int, times: int, states: tuple[str, str, str], times_after: int
) -> None:
    (workspace / "go").touch()
    (workspace / "end").touch()
    async with calling(tmp_path, "once", step):
        pass
    assert count_effects(workspace) == times
    assert await check_after(serve, "once") == states
    assert count_effects(workspace) == times_after


@pytest.mark.parametrize("step", [1, *(pytest.param(step, marks=pytest.mark.nightly) for step in (2, 3))])
async def test_a_call_is_recorded_only_once_its_supervisor_has_started(
    workspace: Path, tmp_path: Path, step: int
) -> None:
    # Starting the supervisor takes time; a service killed during that leaves no record.
    async with calling(tmp_path, "once", step):
        pass
    assert len((tmp_path / "children").read_text().split()) == 1
    assert not (workspace / "begun").exists()


@pytest.mark.parametrize("has_acted", [pytest.param(False, marks=pytest.mark.nightly), True])
async def test_an_interrupted_once_tool_is_unknown_and_not_run_again(
    serve: Serve, workspace: Path, tmp_path: Path, has_acted: bool
) -> None:
    async with calling(tmp_path, "once") as process:
        if has_acted:
            (workspace / "go").touch()
        await wait_for_file(workspace / ("acted" if has_acted else "begun"))
        process.kill()
    await wait_for_exit(int((workspace / "pid").read_text()))
    for name in ("go", "end"):
        (workspace / name).touch()
    assert await check_after(serve, "once") == ("unknown", "unknown", "unknown")
    assert count_effects(workspace) == has_acted


@pytest.mark.parametrize(
    ("tool", "before", "after"), [("idempotent", "unknown", "done"), ("read", "not_done", "not_done")]
)
async def test_read_and_idempotent_tools_run_again_after_a_crash(
    serve: Serve, workspace: Path, tmp_path: Path, tool: str, before: str, after: str
) -> None:
    (workspace / "go").touch()
    async with calling(tmp_path, tool) as process:
        await wait_for_file(workspace / "acted")
        process.kill()
    (workspace / "end").touch()
    assert await check_after(serve, tool) == (before, "", after)
    assert count_effects(workspace) == 2
