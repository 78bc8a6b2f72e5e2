"""The whole command line: help, JSON output, suggestions and completion."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import click
import pytest

from headrace.cli import COMMANDS, main
from headrace.cli.facade.command import SUMMARY_CHARS_MAX
from tests.support.command_line import GIVEN_UP_S, run
from tests.support.facade.scripted import CHAT, GATE, RUN, suite
from tests.support.programs import run_to_end

WIRE_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def walk(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))


COMMAND_LINE = list(walk(main))
ALL_COMMANDS = [pytest.param(path, command, id=" ".join(path)) for path, command in COMMAND_LINE]


@pytest.mark.parametrize(("path", "command"), ALL_COMMANDS)
def test_every_command_has_a_summary_of_one_line_and_options_in_sentences(
    path: tuple[str, ...], command: click.Command
) -> None:
    summary = command.get_short_help_str(10_000)
    assert len(summary) <= SUMMARY_CHARS_MAX
    assert summary.endswith(".")
    for option in command.params:
        if isinstance(option, click.Option):
            assert (option.help or "")[-1:] in (".", "]"), option.name
            assert {*WIRE_NAME.findall(option.help or "")} <= {"read_content", "api_key"}, option.name


def test_every_list_command_has_a_json_option() -> None:
    listing = [
        (path, command)
        for path, command in COMMAND_LINE
        if command.get_short_help_str(10_000).startswith("List ") and not isinstance(command, click.Group)
    ]
    assert len(listing) > 20
    assert not [path for path, command in listing if not any("--json" in param.opts for param in command.params)]


def test_no_group_runs_without_a_command() -> None:
    assert not [path for path, group in COMMAND_LINE if isinstance(group, click.Group) and group.invoke_without_command]


def test_help_lists_each_command_once_in_a_section_and_the_connection_options_last() -> None:
    lines = main.get_help(click.Context(main, info_name="headrace")).splitlines()
    assert not [line for line in lines if "..." in line.removesuffix("[ARGS]...") or "…" in line]
    assert sorted(line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in COMMANDS) == sorted(
        COMMANDS
    )
    assert lines.index("Shell:") < lines.index("Connection options, before or after the command:")
    listed = main.get_command(click.Context(main), "limits")
    assert listed is not None
    help_text = " ".join(listed.get_help(click.Context(listed, info_name="limits")).split())
    assert help_text.endswith(
        "Connection options: --url, --token, --tls-ca, --tls-cert, --tls-key; see headrace --help."
    )


@pytest.mark.parametrize(
    ("words", "suggested"),
    [(("aks",), "'ask'"), (("chats", "lsit"), "'list'"), (("ask", "--agnet", "x", "hi"), "'--agent'")],
)
async def test_a_mistyped_word_gets_a_suggestion(words: tuple[str, ...], suggested: str) -> None:
    code, _, complaint = await run(*words)
    assert code == 2
    assert suggested in complaint.decode()


async def test_connection_options_count_before_and_after_the_command(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        assert (await run("--url", facade.url, "health", url="http://127.0.0.1:1"))[0] == 0
        assert (await run("--url", "http://127.0.0.1:1", "health", "--url", facade.url))[0] == 0


LISTS = {
    "agents list": "/api/agents",
    "chats list": "/api/chats",
    f"chats checkpoints {CHAT}": f"/api/chat/checkpoints?chatId={CHAT}&kind=query",
    "gates list": "/api/gates",
    "runs list": "/api/operator/runs",
    "providers": "/api/operator/providers",
    "limits": "/api/operator/limits",
}
SINGLE_OBJECTS = {
    f"gates show {RUN} {GATE.gate_id}": f"/api/gate?runId={RUN}&gateId={GATE.gate_id}",
    f"runs show {RUN}": f"/api/operator/run?runId={RUN}",
    f"context {CHAT}": f"/api/context?chatId={CHAT}",
    "spend": "/api/usage?groupBy=day",
}


async def get_data(url: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return (await answer.json())["data"]


@pytest.mark.parametrize("command", [*LISTS, *SINGLE_OBJECTS])
async def test_json_output_equals_the_http_apis_with_one_line_for_each_item(tmp_path: Path, command: str) -> None:
    async with suite(tmp_path) as facade:
        code, out, _ = await run(*command.split(), "--json", url=facade.url)
        data = await get_data(facade.url + (LISTS | SINGLE_OBJECTS)[command])
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    if command in SINGLE_OBJECTS:
        assert lines == [data]
    else:
        assert lines == (data if isinstance(data, list) else next(value for value in data.values() if value))
        assert lines


COMPLETED = {
    "as": ["ask"],
    "chats sha": ["share"],
    "chats list --sh": ["--shared"],
    "runs list --state w": ["waiting"],
    "completion z": ["zsh"],
}


@pytest.mark.parametrize("words", COMPLETED)
async def test_bash_completes_commands_options_and_values(words: str, tmp_path: Path) -> None:
    command = tmp_path / "headrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace.cli "$@"\n')
    command.chmod(0o755)
    last = len(words.split())
    script = f"""
    PATH={tmp_path}:$PATH
    eval "$(headrace completion bash)"
    COMP_WORDS=(headrace {words}) COMP_CWORD={last}
    complete -p headrace >&2 && _headrace_completion headrace && printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    code, out, _ = await run_to_end("bash", "-c", script, timeout_s=GIVEN_UP_S)
    assert (code, out.decode().split()) == (0, COMPLETED[words])
