"""A service's process from its settings to its end, observed from outside: exit code, stderr and streams."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest

from headrace.streams import reading
from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.runtime.ending import LOST_TASK
from services.runtime.process.program import wait_for_stop
from services.runtime.rpc.channels import open_channel
from tests.support.programs import starting
from tests.support.scripted_llm import REQUEST
from tests.support.service_process import PROCESS_TIMEOUT_S, small_service
from tests.support.small_service import TICKS


@asynccontextmanager
async def streaming_ticks(address: str) -> AsyncGenerator[AsyncIterator[llm_pb2.LlmDelta]]:
    """Open a stream of the small service."""
    async with (
        open_channel(address) as channel,
        reading(llm_pb2_grpc.LlmServiceStub(channel).StreamChat(REQUEST)) as deltas,
    ):
        yield deltas


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_after_a_signal_open_streams_end_and_the_process_exits_with_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    address = f"unix:{tmp_path}/socket"
    async with small_service(
        HEADRACE_MEMORY_LISTEN=address, HEADRACE_MEMORY_KEY="sk-1", HEADRACE_LOG_LEVEL="DEBUG"
    ) as small:
        assert (await small.logged("settings in force"))["key"] == "***"
        await small.logged("serving")
        assert (await small.logged("started"))["collects"], "garbage, which imports do not"
        async with streaming_ticks(address) as deltas:
            contents = [(await anext(deltas)).content]
            small.process.send_signal(number)
            small.process.send_signal(signal.SIGHUP)  # a terminal that is closed sends it more than once
            contents += [delta.content async for delta in deltas]
        assert contents == [step for step in TICKS if step == "tick"]
        code, lines = await small.ended()
    events = [orjson.loads(line)["event"] for line in lines]
    assert (code, events) == (0, ["rpc done", "stopped"])


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    async with small_service(HEADRACE_MEMORY_LISTEN=address) as small:
        await small.logged("serving")
        async with streaming_ticks(address) as deltas:
            await anext(deltas)
            small.process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.1)
            small.process.send_signal(signal.SIGTERM)
            assert (await small.ended())[0] == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_long_start_cleanly(number: signal.Signals) -> None:
    async with small_service(HEADRACE_MEMORY_START_S="60") as small:
        await small.logged("settings in force")
        await asyncio.sleep(0.2)  # nothing shows that it is waiting
        small.process.send_signal(number)
        assert await small.ended() == (0, [])


@asynccontextmanager
async def small_service_with_stderr(stderr: int, *words: str, **env: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a small service that writes its log to `stderr`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    command = [sys.executable, "-m", "tests.support.small_service"]
    process_context = starting(*words, *command, env=inherited | env, stderr=stderr)
    async with asyncio.timeout(PROCESS_TIMEOUT_S), process_context as process:
        yield process


async def call_until_served(address: str) -> list[str]:
    """Return the answer of a service that may not be serving yet."""
    while True:
        try:
            async with streaming_ticks(address) as deltas:
                return [delta.content async for delta in deltas]
        except Exception:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("file", ["a full disk", "a pipe that nobody reads", "a pipe whose reader has gone"])
async def test_a_log_that_cannot_be_written_delays_no_call(tmp_path: Path, file: str) -> None:
    address = f"unix:{tmp_path}/socket"
    reader, writer = os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    if file == "a pipe that nobody reads":
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
    elif file == "a pipe whose reader has gone":
        os.close(reader)
    async with small_service_with_stderr(
        full if file == "a full disk" else writer, HEADRACE_MEMORY_LISTEN=address
    ) as process:
        for _ in range(3):
            assert "tick" in await call_until_served(address)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_closed_standard_stream_is_replaced_by_devnull(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    closing = ("sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh")
    async with small_service_with_stderr(
        asyncio.subprocess.DEVNULL, *closing, HEADRACE_MEMORY_LISTEN=address
    ) as process:
        assert "tick" in await call_until_served(address)
        assert [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)] == [os.devnull] * 3
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_stalled_event_loop_ends_its_process(tmp_path: Path) -> None:
    settings = {"HEADRACE_MEMORY_LISTEN": f"unix:{tmp_path}/socket", "HEADRACE_STALL_S": "1"}
    async with small_service(**settings, HEADRACE_MEMORY_BLOCKS="true") as small:
        stalled = await small.logged("event loop stalled")
        assert any("small_service.py" in line for line in stalled["threads"])
        assert (await small.ended())[0] == -signal.SIGKILL


async def test_a_lost_task_ends_its_process_without_a_drain(tmp_path: Path) -> None:
    settings = {"HEADRACE_MEMORY_LISTEN": f"unix:{tmp_path}/socket", "HEADRACE_DRAIN_S": "600"}
    async with small_service(**settings, HEADRACE_MEMORY_BREAKS_AFTER_S="0.3") as small:
        await small.logged("serving")
        ended = await small.logged("task ended by an error")
        assert (ended["task"], ended["exception"][0]["exc_type"]) == ("_break", "LookupError")
        assert await small.ended() == (LOST_TASK, [])


async def test_a_process_that_was_paused_is_not_regarded_as_stalled(tmp_path: Path) -> None:
    settings = {"HEADRACE_MEMORY_LISTEN": f"unix:{tmp_path}/socket", "HEADRACE_STALL_S": "5"}
    async with small_service(**settings) as small:
        await small.logged("serving")
        small.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(6)
        small.process.send_signal(signal.SIGCONT)
        small.process.send_signal(signal.SIGTERM)
        assert (await small.ended())[0] == 0


async def test_all_wrong_settings_are_reported_and_nothing_starts() -> None:
    async with small_service(HEADRACE_MEMORY_TICKS="x", HEADRACE_TYPO="1", HEADRACE_DRAIN_S="-1") as small:
        assert await small.ended() == (
            2,
            [
                b"memory: HEADRACE_DRAIN_S: '-1': expected a number that is not negative",
                b"memory: HEADRACE_MEMORY_TICKS: 'x': expected a whole number",
                b"memory: HEADRACE_TYPO: no such setting",
            ],
        )


@pytest.mark.parametrize(("variable", "value"), [("HEADRACE_LOG_LEVEL", "LOUD"), ("HEADRACE_MEMORY_LISTEN", "here")])
async def test_an_unusable_value_is_reported_in_one_line(variable: str, value: str) -> None:
    async with small_service(**{variable: value}) as small:
        code, lines = await small.ended()
    assert code == 2
    assert [line.startswith(b"memory: ") and value.encode() in line for line in lines] == [True]


async def test_an_address_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    async with small_service(HEADRACE_MEMORY_LISTEN=address) as first:
        await first.logged("serving")
        async with small_service(HEADRACE_MEMORY_LISTEN=address) as second:
            assert (await second.logged("cannot start"))["error"] == f"cannot listen on {address}: another process does"
            assert await second.ended() == (1, [])


@pytest.fixture
def own_signals() -> Generator[None]:
    """Signals of the test runner's process, which its later children would ignore as well."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
async def test_the_first_signal_ends_the_wait_and_restores_default_handlers() -> None:
    async with asyncio.timeout(PROCESS_TIMEOUT_S):
        waiting = asyncio.create_task(wait_for_stop())
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await waiting
        handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert handlers == (signal.SIG_DFL, signal.SIG_DFL)


@pytest.mark.usefixtures("own_signals")
async def test_objects_created_at_the_start_are_frozen_for_the_garbage_collector() -> None:
    gc.unfreeze()
    waiting = asyncio.create_task(wait_for_stop())
    await asyncio.sleep(0)
    frozen = gc.get_freeze_count()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(PROCESS_TIMEOUT_S):
        await waiting
    gc.unfreeze()
    assert frozen > 10_000, "modules, at least"
