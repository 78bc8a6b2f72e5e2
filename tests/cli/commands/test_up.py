"""headrace up with the real services and the simulated provider, each a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from tests.cli.commands.test_ask import GIVEN_UP_S, run, start

AGENT = """{"mode": "ONESHOT", "modelConfig": {"providerKey": "simulator", "model": "sim-1"},
"plain": {"systemPrompt": "Answer."}}"""
PROVIDERS = """{"providers": [{"key": "simulator", "protocol": "openai", "baseUrl": "env:SIMULATOR_URL",
"models": [{"name": "sim-1"}]}]}"""
READY = re.compile(rb"ready: (http://127\.0\.0\.1:\d+)  grpc 127\.0\.0\.1:\d+  memory 127\.0\.0\.1:\d+\n")


@pytest.fixture
def config(tmp_path: Path) -> tuple[str, ...]:
    """Options of a suite that disturbs no other."""
    agents = tmp_path / "config" / "agents"
    agents.mkdir(parents=True)
    (agents / "writer.json").write_text(AGENT)
    (tmp_path / "config" / "providers.json").write_text(PROVIDERS)
    folders = ("--config-dir", str(tmp_path / "config"), "--data-dir", str(tmp_path / "data"))
    return (*folders, "--port", "0", "--grpc-port", "0", "--simulate", "--simulate-port", "0")


def _children(pid: int) -> dict[str, int]:
    """Process ids of the services that `pid` has started, by name."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            command = Path(f"/proc/{child}/cmdline").read_bytes().decode()
            found[command.partition("services.")[2].partition("\0")[0]] = int(child)
    return found


async def test_a_suite_answers_restarts_a_dead_service_and_stops_when_told(config: tuple[str, ...]) -> None:
    async with asyncio.timeout(GIVEN_UP_S):
        process = await start("up", *config, OPENAI_API_KEY="sk-secret")
        assert process.stdout is not None
        assert process.stderr is not None
        ready = READY.fullmatch(await process.stdout.readline())
        assert ready is not None
        url = ready[1].decode()
        code, answer, _ = await run("ask", "hello", url=url)
        assert code == 0
        assert b"hello" in answer
        children = _children(process.pid)
        assert set(children) == {"facade", "orchestrator", "tools", "llm_gateway", "memory", "simulator"}
        assert {name for name, pid in children.items() if _has(pid, b"sk-secret")} == {"llm_gateway"}
        os.kill(children["memory"], signal.SIGKILL)
        assert b"memory ended with -9; starting it again" in await process.stderr.readline()
        while (await run("health", url=url))[0] != 0:
            pass
        assert (await run("ask", "again", url=url))[0] == 0
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert not any(_is_alive(child) for child in children.values())


async def test_ask_answers_in_this_terminal_and_stops(config: tuple[str, ...]) -> None:
    code, answer, said = await run("up", *config, "--agent", "writer", "--ask", "hello")
    assert code == 0
    assert b"hello" in answer
    assert READY.fullmatch(said)


async def test_a_question_that_is_refused_ends_the_suite_with_its_exit_code(config: tuple[str, ...]) -> None:
    code, answer, said = await run("up", *config, "--agent", "nobody", "--ask", "hello")
    assert (code, answer) == (1, b"")
    assert b"nobody" in said.splitlines()[-1]


async def test_a_bad_file_is_named_at_the_terminal_when_it_is_saved(tmp_path: Path, config: tuple[str, ...]) -> None:
    async with asyncio.timeout(GIVEN_UP_S):
        process = await start("up", *config)
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readline()
        (tmp_path / "config" / "agents" / "bad.json").write_text('{"mode": "ONCE"}')
        said = (await process.stderr.readline()).decode()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert said.startswith("orchestrator: agent file refused: bad.json: ")
    assert said.endswith(f"(log: {tmp_path}/data/logs/orchestrator.log)\n")


async def test_kill_9_leaves_nothing_behind(config: tuple[str, ...]) -> None:
    async with asyncio.timeout(GIVEN_UP_S):
        process = await start("up", *config)
        assert process.stdout is not None
        await process.stdout.readline()
        children = _children(process.pid)
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


async def test_a_busy_port_is_said_before_anything_starts(config: tuple[str, ...]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = f"Error: --port {port} cannot be had (Address already in use); 0 takes any free port\n".encode()
        for command in ("up", *config), ("simulate",):
            assert await run(*command, "--port", str(port)) == (1, b"", refused)


async def test_wrong_settings_end_the_start_with_the_service_s_words(config: tuple[str, ...]) -> None:
    code, _, said = await run("up", *config, HEADRACE_MEMORY_CHAT_K="many")
    assert code == 1
    assert said.startswith(b"Error: memory cannot start:\nmemory: HEADRACE_MEMORY_CHAT_K: 'many'")
