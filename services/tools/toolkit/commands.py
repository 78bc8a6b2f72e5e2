"""Tools that run a command: its output as deltas, its end as the result."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.sandbox.command_run import OUTPUT_BYTES_MAX, Exited, Output, run
from services.tools.sandbox.confinement.policy import Limits, Policy
from services.tools.toolkit.file_work import in_thread
from services.tools.toolkit.tool import Call, output, result

TIMEOUT_S = 120.0
"""For a call that asks for nothing else; the default budget's toolTimeoutMs."""

TIMEOUT_S_MAX = 600.0
"""Nobody waits longer for a tool."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run for one call."""

    arguments: tuple[str, ...]
    input: str = ""
    readable: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S
    shown: Literal["all", "stdout"] = "all"
    """What becomes the result of a command that succeeds; of one that fails, all."""


async def run_command(call: Call, command: Command) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Run it in the chat's workspace. Raises ToolFailed when it cannot be started."""
    timeout_s = min(command.timeout_s, call.timeout_s or TIMEOUT_S_MAX, TIMEOUT_S_MAX)
    policy = await policy_of(call, command, timeout_s)
    said: list[Output] = []
    ending = Exited("failed")
    async with aclosing(run(policy, call.sandbox.allow)) as events:
        async for event in events:
            match event:
                case Output(stream=stream, text=text):
                    said.append(event)
                    yield output(stream, text)
                case Exited():
                    ending = event
    if ending.reason == "failed":
        raise ToolFailed(f"the command could not be run: {ending.error}")
    ok = ending.reason == "exited" and ending.status == 0
    shown = "".join(piece.text for piece in said if not ok or command.shown == "all" or piece.stream == "stdout")
    shown = with_note(shown, _note(ending, timeout_s))
    yield result(with_note(shown, await _room_note(call)), ok=ok)


async def policy_of(call: Call, command: Command, timeout_s: float) -> Policy:
    """The command in the chat's workspace and this service's sandbox. Raises ToolFailed where there is none."""
    if call.sandbox.tier is None:
        raise ToolFailed(unavailable(call.sandbox.problem))
    workspace = await in_thread(".", lambda: call.workspaces.open(call.chat_id))
    room_bytes = await in_thread(".", workspace.room_bytes)
    return Policy(
        command=command.arguments,
        folder=str(workspace.folder),
        input=command.input,
        readable=(*command.readable, *call.sandbox.readable),
        writable=call.sandbox.writable,
        confined=call.sandbox.confined,
        namespaces=call.sandbox.namespaces,
        network=call.sandbox.allow is not None,
        timeout_s=timeout_s,
        limits=Limits(file_bytes=min(Limits().file_bytes, room_bytes)),  # in a full workspace, files can be deleted
    )


async def _room_note(call: Call) -> str:
    is_full = await in_thread(".", lambda: call.workspaces.open(call.chat_id).room_bytes() == 0)
    return "[the workspace is full: nothing can be written until files are deleted]" if is_full else ""


def unavailable(problem: str) -> str:
    return f"commands cannot be run on this machine: its sandbox does not work ({problem})"


def _note(ending: Exited, timeout_s: float) -> str:
    match ending:
        case Exited(reason="timeout"):
            return f"[ended after {timeout_s:g} s: its time was over]"
        case Exited(reason="flood"):
            return f"[ended: more than {OUTPUT_BYTES_MAX} bytes of output]"
        case Exited(status=0):
            return ""
        case Exited(status=status):
            return f"[exit code {status}]" if status > 0 else f"[ended by signal {-status}]"


def with_note(text: str, note: str) -> str:
    if not text or not note:
        return text or note or "(no output)"
    return text + ("" if text.endswith("\n") else "\n") + note
