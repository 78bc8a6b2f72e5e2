"""headrace init, and the project that it creates: it answers with each provider, and no file of it is refused."""

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.commands.init import PROVIDERS
from services.config_check.__main__ import check_folder
from services.simulator.server import simulator
from tests.support.command_line import run, start
from tests.support.suite import READY
from tests.support.tiers import check_first

QUESTION = "How many words has: to be or not to be?"
SCRIPT = [
    {
        "match": {"turn": 1},
        "steps": [{"toolCall": "count_words", "id": "call_1", "arguments": '{"text": "to be or not to be"}'}],
    },
    {"steps": [{"content": "6 words."}]},
]
KEYLESS: dict[str, Any] = {"HEADRACE_TOOLS_SANDBOX": "process"}
"""The Python tool must also run without bubblewrap."""


async def init(folder: Path, *arguments: str, **settings: Any) -> tuple[int | None, bytes, bytes]:
    return await run("init", str(folder), *arguments, **settings)


@pytest.mark.parametrize(("encoding", "shown"), [("latin-1", b"caf\xe9\\u6c34"), ("ascii", "café水".encode())])
def test_output_escapes_letters_that_its_encoding_lacks(tmp_path: Path, encoding: str, shown: bytes) -> None:
    """For ASCII, click uses UTF-8, since ASCII is rarely set on purpose."""
    command = [sys.executable, "-m", "headrace.cli", "init", str(tmp_path / "café水"), "--provider", "simulator"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    process = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert (process.returncode, process.stderr) == (0, b"")
    assert b"/" + shown + b"/providers.json\n" in process.stdout


@pytest.mark.parametrize("provider", check_first(list(PROVIDERS), 3))
async def test_a_project_of_each_provider_answers_with_its_own_tool(tmp_path: Path, provider: str) -> None:
    code, out, _ = await init(tmp_path / "own", "--provider", provider)
    assert code == 0
    assert f"cd {tmp_path / 'own'}".encode() in out
    async with simulator(SCRIPT) as model:
        keys = await asyncio.to_thread(point_at, tmp_path / "own", model.base_url)
        ports = ("--port", "0", "--grpc-port", "0", "--data-dir", str(tmp_path / "data"))
        up = ("up", "--config-dir", str(tmp_path / "own"), *ports, "--agent", "assistant", "--ask", QUESTION)
        code, answer, errors = await run(*up, **keys, **KEYLESS)
    assert code == 0, errors.decode()
    assert b"6 words." in answer
    assert b"words" in answer.split(b"6 words.")[0]
    assert b"refused" not in errors


def point_at(folder: Path, url: str) -> dict[str, Any]:
    """Point the project's provider to the URL; return environment variables with a key."""
    path = folder / "providers.json"
    configuration = json.loads(path.read_text())
    [provider] = configuration["providers"]
    places = {"anthropic": "/v1", "gemini": "/v1beta", "bedrock": ""}
    address = url.removesuffix("/v1") + places.get(provider["protocol"], "/v1")
    keys: dict[str, Any] = dict.fromkeys(re.findall(r"env:(\w+_KEY)\b", path.read_text()), "key-4711")
    if provider["baseUrl"].startswith("env:"):
        keys[provider["baseUrl"].removeprefix("env:")] = address
    else:
        provider["baseUrl"] = address
    path.write_text(json.dumps(configuration))
    return keys | {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_file_of_a_new_project_is_refused(tmp_path: Path, provider: str) -> None:
    await init(tmp_path, "--provider", provider)
    definitions, problems = await asyncio.to_thread(check_folder, tmp_path, None)
    assert problems == []
    assert [*definitions.requests] == ["github_issue"]
    compose = yaml.safe_load((tmp_path / "compose.yaml").read_text())
    assert compose["services"]["headrace"]["command"][:2] == ["headrace", "up"]


async def test_a_projects_mcp_server_offers_the_tools_its_agent_lists(tmp_path: Path) -> None:
    await init(tmp_path, "--provider", "simulator")
    program = "import mcp.server.mcpserver as m; m.MCPServer.run = lambda *_: None; exec(open('mcp_server.py').read())"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], cwd=tmp_path, check=True)
    agent = (tmp_path / "agents" / "assistant.json").read_text()
    functions = re.findall(r"^def (\w+)", (tmp_path / "mcp_server.py").read_text(), re.MULTILINE)
    assert functions
    assert set(re.findall(r"notes__(\w+)", agent)) == set(functions)


async def test_init_writes_nothing_if_a_file_exists(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    code, out, complaint = await init(tmp_path)
    assert (code, out) == (1, b"")
    assert b"README.md" in complaint
    assert os.listdir(tmp_path) == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "provider"),
    [({}, "openai"), ({"ANTHROPIC_API_KEY": "k"}, "anthropic"), ({"GEMINI_API_KEY": ""}, "openai")],
)
async def test_without_a_terminal_the_key_in_the_environment_decides(
    tmp_path: Path, settings: dict[str, str], provider: str
) -> None:
    code, _, _ = await init(tmp_path / "own", **settings)
    assert code == 0
    [provider_entry] = json.loads((tmp_path / "own" / "providers.json").read_text())["providers"]
    assert provider_entry["key"] == provider


async def test_the_env_file_is_readable_only_by_its_owner_and_ignored_by_git(tmp_path: Path) -> None:
    await init(tmp_path)
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert "OPENAI_API_KEY=\n" in (tmp_path / ".env").read_text()
    assert ".env" in (tmp_path / ".gitignore").read_text().splitlines()


async def test_init_names_a_folder_that_cannot_be_written() -> None:
    code, _, complaint = await init(Path("/proc/none"))
    assert code == 1
    assert b"/proc/none" in complaint


async def test_up_reads_keys_from_the_env_file_and_prints_next_steps(tmp_path: Path) -> None:
    await init(tmp_path, "--provider", "openrouter")
    async with simulator(SCRIPT) as model:
        await asyncio.to_thread(point_at, tmp_path, model.base_url)
        (tmp_path / ".env").write_text("OPENROUTER_API_KEY='key-of-$file'\nHEADRACE_FACADE_HEARTBEAT_S=7\n")
        ports = ("--config-dir", str(tmp_path), "--data-dir", str(tmp_path / "data"), "--port", "0", "--grpc-port", "0")
        process = await start("up", *ports, **KEYLESS)
        assert process.stdout is not None
        ready = READY.search((await process.stdout.readline()).decode())
        assert ready is not None
        next_steps = [(await process.stdout.readline()).decode() for _ in range(5)]
        code, _, _ = await run("ask", "--agent", "assistant", QUESTION, url=ready["url"])
        headers = [request.headers for request in model.requests]
        process.terminate()
        await process.wait()
    assert code == 0
    assert {headers["authorization"] for headers in headers} == {"Bearer key-of-$file"}
    words = [line.split()[0] for line in next_steps]
    assert words == ["console", "ask", "curl", "files", "stop"]
    assert f"{ready['url']}/api/query" in next_steps[2]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("", "", b"has no providers.json: `headrace init DIR`"),
        ("providers.json", "{", b"provider file refused"),
        ("providers.json", '{"providers": []}{', b"provider file refused"),
    ],
)
async def test_up_fails_without_a_valid_providers_file(tmp_path: Path, name: str, text: str, problem: bytes) -> None:
    if name:
        (tmp_path / name).write_text(text)
    ports = ("--config-dir", str(tmp_path), "--data-dir", str(tmp_path / "data"), "--port", "0", "--grpc-port", "0")
    code, out, errors = await run("up", *ports)
    assert (code, out) == (1, b"")
    assert problem in errors
    assert errors.splitlines()[-1].startswith(b"Error: ")


async def test_up_names_a_missing_folder(tmp_path: Path) -> None:
    code, _, errors = await run("up", "--config-dir", str(tmp_path / "none"))
    assert code == 1
    assert f"{tmp_path / 'none'} is no folder".encode() in errors


async def test_check_reports_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "notes.txt").write_text("of something else")
    code, _, errors = await run("check", str(tmp_path))
    assert code == 1
    assert b"is empty" in errors
    assert b"headrace init" in errors


async def test_check_finds_missing_secrets_and_reads_the_env_file(tmp_path: Path) -> None:
    await init(tmp_path, "--provider", "openai")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=key-4711\n")
    code, out, _ = await run("check", "--secrets", str(tmp_path))
    assert code == 1
    [problem] = out.decode().splitlines()
    assert problem.startswith("tools/github_issue: ")
    assert "GITHUB_TOKEN" in problem
