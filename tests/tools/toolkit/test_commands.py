"""Commands over the tools service, in every tier that works here: streaming, limits, the operator's paths, exits."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from venv import EnvBuilder

import pytest

from headrace.streams import reading
from services.tools.sandbox.tiers import Sandbox
from tests.support.tools.suite import Serve, Suite
from tests.support.tools.tiers import TIERS

pytestmark = pytest.mark.parametrize("tier", TIERS)


def sandbox(tier: str, **settings: tuple[str, ...]) -> Sandbox:
    return Sandbox(tier, **settings)  # pyright: ignore[reportArgumentType] - one of its literals


def bash(command: str) -> str:
    return json.dumps({"command": command})


async def test_each_line_arrives_before_the_next_is_printed(serve: Serve, tier: str) -> None:
    command = bash("for i in 1 2 3 4 5; do echo $i; while [ ! -e seen$i ]; do sleep 0.01; done; done")
    lines: list[str] = []
    async with serve(sandbox(tier)) as suite, reading(suite.call("_bash_", command)) as deltas:
        async for delta in deltas:
            if delta.HasField("output"):
                lines.append(delta.output.delta)
                (suite.workspace / f"seen{len(lines)}").touch()
    assert lines == ["1\n", "2\n", "3\n", "4\n", "5\n"]


async def test_two_hundred_megabytes_end_with_a_note(serve: Serve, tier: str) -> None:
    async with serve(sandbox(tier)) as suite:
        _, outcome = await suite.execute("_bash_", bash("head -c 200000000 /dev/zero | tr '\\0' x"))
    assert not outcome.ok
    assert len(outcome.result) <= 30_000
    assert outcome.result.endswith("[ended: more than 4194304 bytes of output]")


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("kill -9 $$", "[ended by signal 9]"),
        ("exit 7", "[exit code 7]"),
        ("trap '' TERM; sleep 1050.5; sleep 1050.5", "[ended after 1 s: its time was over]"),
        ("nosuchprogram", "[exit code 127]"),
    ],
)
async def test_the_way_a_command_ended_is_reported(serve: Serve, tier: str, command: str, note: str) -> None:
    arguments = json.dumps({"command": command, "timeoutMs": 1000} if "sleep" in command else {"command": command})
    async with serve(sandbox(tier)) as suite:
        _, outcome = await suite.execute("_bash_", arguments)
    assert not outcome.ok
    assert outcome.result.endswith(note)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "for i in $(seq 1 5000); do printf '\\r%d%%' $i; done; printf '\\ndone\\n'",
            "5000%\ndone\n[lines that were written anew are shown in their last state]",
        ),
        (
            r"printf '\033[2K\rpart\033[0K\r\033[32mall\033[0m'",
            "all\n[lines that were written anew are shown in their last state]",
        ),
        (
            r"printf '\033[1;31mred\033[0m \033]8;;https://x.org\033\\link\033]8;;\007 \033(Bend\033[?25h\n'",
            "red link end\n",
        ),
        (r"printf 'a\r\nb\r\r\nc\r'", "a\r\nb\r\r\nc\r"),
    ],
)
async def test_terminal_control_sequences_are_resolved_in_the_result(
    serve: Serve, tier: str, command: str, expected: str
) -> None:
    async with serve(sandbox(tier)) as suite:
        pieces, outcome = await suite.execute("_bash_", bash(command))
    assert outcome.result == expected
    assert "\r" in "".join(text for _, text in pieces) or "\x1b" in "".join(text for _, text in pieces)


async def test_the_operators_paths_are_accessible(serve: Serve, tier: str, tmp_path: Path) -> None:
    shared, readable = tmp_path / "shared", tmp_path / "readable"
    shared.mkdir()
    readable.write_text("read me")
    command = f"cat {readable}; touch {shared}/made; echo no > {readable}"
    async with serve(sandbox(tier, readable=(str(readable),), writable=(str(shared),))) as suite:
        _, outcome = await suite.execute("_bash_", bash(command))
    assert outcome.result.startswith("read me")
    assert re.search("Permission denied|Read-only file system", outcome.result)
    assert (shared / "made").exists()
    assert readable.read_text() == "read me"


PROGRAMS = {
    "urllib": "import urllib.request; urllib.request.urlopen('http://desk.example/')",
    "socket": "import socket; socket.create_connection(('192.0.2.1', 80))",
    "name": "import socket; socket.getaddrinfo('desk.example', 443)",
    "package": "import nosuchpackage.inner",
}


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("urllib", "NO_NETWORK: this tool runs without a network. Give its definition a `request`"),
        ("socket", "NO_NETWORK: this tool runs without a network."),
        ("name", "NO_NETWORK: this tool runs without a network."),
        ("package", "NO_PACKAGE: this tool's Python has no package 'nosuchpackage'. Install it"),
    ],
)
async def test_a_tool_failing_for_network_or_package_reports_the_remedy(
    serve: Serve, tier: str, program: str, problem: str
) -> None:
    async with serve(sandbox(tier)) as suite:
        (suite.definitions / "own.py").write_text(PROGRAMS[program])
        await define(suite, "python3", "own.py")
        _, outcome = await suite.execute("own")
    assert not outcome.ok
    assert outcome.result.startswith(problem)
    assert len(outcome.result.splitlines()) == 3  # the last line of the traceback, and the exit code


async def test_a_tool_that_fails_otherwise_shows_its_traceback(serve: Serve, tier: str) -> None:
    async with serve(sandbox(tier)) as suite:
        (suite.definitions / "own.py").write_text("open('/nowhere/at/all')")
        await define(suite, "python3", "own.py")
        _, outcome = await suite.execute("own")
    assert outcome.result.startswith("Traceback")


async def test_packages_of_a_venv_in_the_tools_folder_can_be_imported(serve: Serve, tier: str) -> None:
    async with serve(sandbox(tier)) as suite:
        environment = suite.definitions / "venv"
        await asyncio.to_thread(EnvBuilder(symlinks=True).create, environment)
        packages = next(environment.glob("lib/python*/site-packages"))
        (packages / "millstones.py").write_text("count = 2")
        (suite.definitions / "own.py").write_text("import millstones; print(millstones.count)")
        await define(suite, "venv/bin/python", "own.py")
        _, outcome = await suite.execute("own")
    assert outcome.result == "2\n"


async def define(suite: Suite, *command: str) -> None:
    tool = {"name": "own", "description": "A tool", "effect": "read", "command": command}
    (suite.definitions / "own.backend").write_text(json.dumps({"tools": [tool]}))
    await asyncio.to_thread(suite.catalogue.reload)
