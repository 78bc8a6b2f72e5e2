from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from headrace.v1 import tools_pb2
from services.tools.errors import CredentialNeeded, ToolFailed
from services.tools.sandbox.command import OUTPUT_BYTES_MAX, CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor.policy import Limits, Policy
from services.tools.toolkit.tool import ToolContext, make_output, make_result
from services.tools.workspace.file_work import run_in_thread

TIMEOUT_S = 120.0
"""Default timeout of a call, equal to toolTimeoutMs of the default budget."""

TIMEOUT_S_MAX = 600.0

REFUSED_STATUS = 77
"""Exit status with which a command reports that its credential was refused and nothing took effect: EX_NOPERM."""


@dataclass(frozen=True, slots=True)
class Command:
    arguments: tuple[str, ...]
    input: str = ""
    readable: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S
    environment: tuple[tuple[str, str], ...] = ()
    """Variables in addition to those of every command."""

    credential: str = ""
    """Name of the credential that it may report as refused; empty if it has none."""

    shown: Literal["all", "stdout"] = "all"
    """Output that the model sees on success; on failure it sees all."""


_NO_PACKAGE = re.compile(r"No module named '(\w+)")

_NO_NETWORK = re.compile(
    r"failure in name resolution|Name or service not known|Network is unreachable|not resolve host|EAI_AGAIN"
    r"|urlopen error|Failed to establish a new connection|Cannot connect to host|/socket\.py"
    r"|All connection attempts failed"
)
"""How Python's and other programs' HTTP clients report it, in each tier of the sandbox."""

_NOT_ALLOWED = re.compile(r"Tunnel connection failed: 403|CONNECT tunnel failed, response 403|\b403 refused")


_CONTROLS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-Z\\^_`-~])")
"""Sequences that colour a terminal's text or move in it."""


async def run_command(context: ToolContext, command: Command) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Run a command. Raises ToolFailed if it cannot be started."""
    timeout_s = min(command.timeout_s, context.timeout_s or TIMEOUT_S_MAX, TIMEOUT_S_MAX)
    policy = await make_policy(context, command, timeout_s)
    outputs: list[CommandOutput] = []
    ending = CommandExit("failed")
    async with aclosing(stream_command(policy, context.sandbox.allow_list, context.begin)) as events:
        async for event in events:
            match event:
                case CommandOutput(stream=stream, text=text):
                    outputs.append(event)
                    yield make_output(stream, text)
                case CommandExit():
                    ending = event
    if ending.reason == "failed":
        raise ToolFailed(f"the command could not be run: {ending.error}")
    if command.credential and ending.reason == "exited" and ending.status == REFUSED_STATUS:
        raise CredentialNeeded(command.credential, "refused")
    ok = ending.reason == "exited" and ending.status == 0
    shown = "".join(piece.text for piece in outputs if not ok or command.shown == "all" or piece.stream == "stdout")
    shown = format_output(shown)
    problem = "" if ok or command.shown == "all" else _explain_failure(shown, has_network=policy.network)
    if problem:  # in place of a traceback; `tool.output` has had it
        shown = f"{problem}\n{(shown.rstrip().splitlines() or [''])[-1]}"
    shown = add_note(shown, _format_end(ending, timeout_s))
    if problem := await run_in_thread(".", lambda: context.open_workspace().explain_full()):
        shown = add_note(shown, f"[{problem}]")
    yield make_result(shown, ok=ok)


async def make_policy(context: ToolContext, command: Command, timeout_s: float) -> Policy:
    """Return the command's policy. Raises ToolFailed if no sandbox works."""
    if context.sandbox.tier is None:
        raise ToolFailed(explain_unavailable(context.sandbox.problem))
    workspace = await run_in_thread(".", context.open_workspace)
    space, room_bytes = await run_in_thread(".", workspace.measure_space)
    return Policy(
        command=command.arguments,
        folder=str(workspace.folder),
        input=command.input,
        environment=command.environment,
        readable=(*command.readable, *context.sandbox.readable),
        writable=context.sandbox.writable,
        mark=context.sandbox.mark,
        confined=context.sandbox.is_confined,
        namespaces=context.sandbox.has_namespaces,
        network=context.sandbox.allow_list is not None,
        space=space,
        timeout_s=timeout_s,
        limits=Limits(file_bytes=min(Limits().file_bytes, room_bytes)),  # in a full workspace, files can be deleted
    )


def explain_unavailable(problem: str) -> str:
    return f"commands cannot be run on this machine: its sandbox does not work ({problem})"


def _explain_failure(output: str, *, has_network: bool) -> str:
    """Return what a tool lacks and what its author can do about it; empty if its output shows nothing of the kind."""
    if (package := _NO_PACKAGE.search(output)) is not None:
        return (
            f"NO_PACKAGE: this tool's Python has no package {package[1]!r}. Install it into an environment in the "
            f"tools folder (python3 -m venv tools/venv; tools/venv/bin/pip install {package[1]}), and let the tool's "
            'command begin with "venv/bin/python".'
        )
    if has_network and _NOT_ALLOWED.search(output) is not None:
        return "NO_NETWORK: the host is not in HEADRACE_TOOLS_NETWORK_ALLOW, which lists all that commands reach."
    if not has_network and _NO_NETWORK.search(output) is not None:
        return (
            "NO_NETWORK: this tool runs without a network. Give its definition a `request` instead of a `command`, or "
            "open the host to all commands with HEADRACE_TOOLS_NETWORK_ALLOW, which needs bubblewrap."
        )
    return ""


def _format_end(ending: CommandExit, timeout_s: float) -> str:
    match ending:
        case CommandExit(reason="timeout"):
            return f"[ended after {timeout_s:g} s: its time was over]"
        case CommandExit(reason="flood"):
            return f"[ended: more than {OUTPUT_BYTES_MAX} bytes of output]"
        case CommandExit(reason="full", error=problem):
            return f"[ended: {problem}; delete files]"
        case CommandExit(status=0):
            return ""
        case CommandExit(status=status):
            return f"[exit code {status}]" if status > 0 else f"[ended by signal {-status}]"


def format_output(text: str) -> str:
    """Return what a terminal would show: without colours, and of a line that is written anew its last state."""
    lines = _CONTROLS.sub("", text).split("\n")
    # A line may end with carriage returns, and these overwrite nothing.
    states = [(body := line.rstrip("\r")).rpartition("\r")[2] + line[len(body) :] for line in lines]
    shown = "\n".join(states)
    return shown if states == lines else add_note(shown, "[lines that were written anew are shown in their last state]")


def add_note(text: str, note: str) -> str:
    if not text or not note:
        return text or note or "(no output)"
    return text + ("" if text.endswith("\n") else "\n") + note
