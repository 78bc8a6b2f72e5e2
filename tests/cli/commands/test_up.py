"""headrace up with the real services and the simulated provider."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from headrace.cli.supervisor.ports import reserve_port
from tests.support.command_line import GIVEN_UP_S, run, start
from tests.support.suite import find_services
from tests.support.tiers import check_first
from tests.support.timing import within

AGENT = """{"mode": "ONESHOT", "modelConfig": {"providerKey": "simulator", "model": "sim-1"},
"plain": {"systemPrompt": "Answer."}}"""
PROVIDERS = """{"providers": [{"key": "simulator", "protocol": "openai", "baseUrl": "env:SIMULATOR_URL",
"models": [{"name": "sim-1"}]}]}"""
READY = re.compile(rb"ready: (http://127\.0\.0\.1:\d+)  grpc 127\.0\.0\.1:\d+  memory 127\.0\.0\.1:\d+\n")


@pytest.fixture
def config(tmp_path: Path) -> tuple[str, ...]:
    """Options of a suite with free ports and folders of its own."""
    agents = tmp_path / "config" / "agents"
    agents.mkdir(parents=True)
    (agents / "writer.json").write_text(AGENT)
    (tmp_path / "config" / "providers.json").write_text(PROVIDERS)
    folders = ("--config-dir", str(tmp_path / "config"), "--data-dir", str(tmp_path / "data"))
    return (*folders, "--port", "0", "--grpc-port", "0", "--simulate", "--simulate-port", "0")


@asynccontextmanager
async def starting(config: Sequence[str], **settings: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """Start a suite and wait until it is ready; yield its process and URL."""
    async with asyncio.timeout(GIVEN_UP_S):
        process = await start("up", *config, **settings)
        assert process.stdout is not None
        ready = READY.fullmatch(await process.stdout.readline())
        assert ready is not None
        yield process, ready[1].decode()


def without_notices(output: bytes) -> bytes:
    """Return the output without the lines about services that are slow to start, which depend on the machine."""
    return re.sub(rb"^waiting for .*\n", b"", output, flags=re.MULTILINE)


async def read_complaint(process: asyncio.subprocess.Process) -> bytes:
    """Return the next line on standard error that is not a notice."""
    assert process.stderr is not None
    while not (line := without_notices(await process.stderr.readline())):
        assert process.returncode is None, "the process has ended"
    return line


async def stop(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


SPLIT = {"facade", "orchestrator", "tools", "llm_gateway", "memory", "simulator"}


@pytest.mark.parametrize(
    ("form", "names", "keeper", "victim"),
    check_first(
        [((), {"suite", "tools", "simulator"}, "suite", "suite"), (("--split",), SPLIT, "llm_gateway", "memory")]
    ),
)
async def test_a_suite_answers_restarts_a_killed_process_and_stops_on_sigterm(
    config: tuple[str, ...], form: tuple[str, ...], names: set[str], keeper: str, victim: str
) -> None:
    """Only `keeper` has the providers' keys."""
    async with starting((*form, *config), OPENAI_API_KEY="sk-secret") as (process, url):
        code, answer, _ = await run("ask", "hello", url=url)
        assert code == 0
        assert b"hello" in answer
        children = find_services(process.pid)
        assert set(children) == names
        assert {name for name, pid in children.items() if _has(pid, b"sk-secret")} == {keeper}
        os.kill(children[victim], signal.SIGKILL)
        assert f"{victim} ended with -9; starting it again".encode() in await read_complaint(process)
        while (await run("health", url=url))[0] != 0:
            pass
        assert (await run("ask", "again", url=url))[0] == 0
        await stop(process)
    assert not any(_is_alive(child) for child in children.values())


async def test_up_with_ask_prints_the_answer_and_stops(config: tuple[str, ...]) -> None:
    code, answer, errors = await run("up", *config, "--agent", "writer", "--ask", "hello")
    assert code == 0
    assert b"hello" in answer
    assert READY.fullmatch(without_notices(errors))


async def test_up_with_a_refused_question_stops_with_its_exit_code(config: tuple[str, ...]) -> None:
    code, answer, errors = await run("up", *config, "--agent", "nobody", "--ask", "hello")
    assert (code, answer) == (1, b"")
    assert b"nobody" in errors.splitlines()[-1]


async def test_up_reports_a_bad_file_as_soon_as_it_is_saved(tmp_path: Path, config: tuple[str, ...]) -> None:
    async with starting(config) as (process, _):
        (tmp_path / "config" / "agents" / "bad.json").write_text('{"mode": "ONCE"}')
        error_line = (await read_complaint(process)).decode()
        await stop(process)
    assert error_line.startswith("orchestrator: agent file refused: bad.json: ")
    assert error_line.endswith(f"(log: {tmp_path}/data/logs/suite.log)\n")


async def test_killing_up_ends_all_its_services(config: tuple[str, ...]) -> None:
    async with starting(config) as (process, _):
        children = find_services(process.pid)
        process.kill()
        await process.wait()
        while any(_is_alive(child) for child in children.values()):
            await asyncio.sleep(0.01)


def _has(pid: int, secret: bytes) -> bool:
    return secret in Path(f"/proc/{pid}/environ").read_bytes()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_busy_port_is_reported_before_anything_starts(config: tuple[str, ...]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = f"Error: --port {port} cannot be used (Address already in use); 0 takes any free port\n".encode()
        for command in ("up", *config), ("simulate",):
            assert await run(*command, "--port", str(port)) == (1, b"", refused)


async def test_a_reserved_port_is_free_only_for_its_service() -> None:
    with reserve_port("--port", 0) as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        server.close()
        await server.wait_closed()


@pytest.mark.nightly
async def test_a_suite_killed_ten_times_serves_again_within_15_s(config: tuple[str, ...]) -> None:
    async with starting(config) as (process, url):
        killed_pids = set[int]()
        while len(killed_pids) < 10:
            suite = find_services(process.pid).get("suite")
            if suite is not None and suite not in killed_pids:
                os.kill(suite, signal.SIGKILL)
                killed_pids.add(suite)
            await asyncio.sleep(0.01)
        async with aiohttp.ClientSession() as http, within(15):
            while not await _can_answer(http, url):
                await asyncio.sleep(0.1)
        await stop(process)


async def _can_answer(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.post(f"{url}/api/query", json={"message": "hello", "agentKey": "writer"}) as response:
            return b'"run.complete"' in await response.read()
    except aiohttp.ClientError:
        return False


async def test_a_second_suite_on_the_same_data_fails_at_once_with_the_reason(
    tmp_path: Path, config: tuple[str, ...]
) -> None:
    async with starting(config) as (first, _):
        code, _, errors = await run("up", *config)
        await stop(first)
    assert code == 1
    reason = f"{tmp_path}/data/chats belongs to another memory service that runs; give this one its own"
    assert errors.decode().endswith(f"Error: suite cannot start:\ncannot start: {reason}\n")
    assert b"suite ended with" not in errors


async def test_closing_the_terminal_stops_the_suite_gracefully(config: tuple[str, ...]) -> None:
    async with starting(config) as (process, _):
        assert process.stderr is not None
        children = find_services(process.pid)
        for _ in range(2):  # The kernel and the shell each send the signal.
            process.send_signal(signal.SIGHUP)
        assert await process.wait() == 0
        assert without_notices(await process.stderr.read()) == b"stopping; again to end at once\n"
    assert not any(_is_alive(child) for child in children.values())


async def test_wrong_settings_fail_the_start_with_the_services_message(config: tuple[str, ...]) -> None:
    code, _, errors = await run("up", *config, HEADRACE_MEMORY_CHAT_K="many")
    assert code == 1
    assert without_notices(errors).startswith(b"Error: suite cannot start:\nmemory: HEADRACE_MEMORY_CHAT_K: 'many'")
