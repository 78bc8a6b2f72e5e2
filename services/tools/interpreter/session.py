"""The service's view of one interpreter.

Output comes over pipes, so that the interpreter's child programs stream too; a random mark in both shows where a piece
of code's output ends.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import secrets
import socket
import sysconfig
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from services.runtime.net.allow_list import AllowList
from services.tools.sandbox.command import (
    INTERPRETER,
    OUTPUT_BYTES_MAX,
    STREAMS,
    CommandOutput,
    Stream,
    SupervisedCommand,
    begin_at_once,
    read_exit,
    start_command,
    wait_readable,
)
from services.tools.sandbox.supervisor.policy import Limits, Policy

REPL = str(Path(__file__).with_name("repl.py"))
PACKAGES = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
"""Folders of the service's own packages, with numpy and the like if installed."""

LIFE_S_MAX = 6 * 3600.0
"""Maximum lifetime of an interpreter; no run takes longer."""

LIMITS = Limits(cpu_s=3600)

START_S = 30.0
"""Time for a start, which takes tens of milliseconds on an idle machine."""

GRACE_S = 2.0
"""Time that code may continue after an interrupt before its interpreter is killed."""

LEAVE_S = 0.3
"""The same after the caller has left, because everything must stop within 500 ms."""


@dataclass(frozen=True, slots=True)
class CodeEnded:
    reason: Literal["ended", "late", "flood", "died"]
    ok: bool = False
    problem: str = ""


class InterpreterSession:
    """One interpreter, which runs one piece of code at a time."""

    def __init__(self, channel: socket.socket, supervised: SupervisedCommand) -> None:
        self._channel = channel
        self._supervised = supervised
        self._unread_output: dict[Stream, bytes] = {}
        self.is_alive = True
        """False once the variables are lost."""

    async def wait_ready(self) -> None:
        """Wait for the start; if it fails, close the interpreter and raise OSError."""
        ready = b""
        try:
            await self._supervised.begin(begin_at_once)
            with suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    ready = await asyncio.get_running_loop().sock_recv(self._channel, 1)
        finally:
            if not ready:
                await self.close()
        if not ready:
            raise OSError("it has ended at once, or does not answer")

    async def execute(self, code: str, timeout_s: float) -> AsyncGenerator[CommandOutput | CodeEnded]:
        """Stream the code's output, then CodeEnded; leaving early interrupts the code, so consume this under
        `aclosing`."""
        running = _RunningCode(
            MarkedOutput(secrets.token_hex(16), self._unread_output), asyncio.get_running_loop().time() + timeout_s
        )
        try:
            with suppress(OSError):  # it has died in the meantime, and its output ends
                request = json.dumps({"mark": running.marked.text, "code": code}).encode() + b"\n"
                await asyncio.get_running_loop().sock_sendall(self._channel, request)
            while piece := await self._next_output(running):
                yield piece
            end = await self._finish_code(running)
        except BaseException:  # the caller has left
            if not running.marked.is_complete:
                self._interrupt_code(running, "late", LEAVE_S)
            while await self._next_output(running):
                pass
            await self._finish_code(running)
            raise
        yield end

    async def close(self) -> None:
        """End the interpreter and everything it started; may be repeated."""
        self.is_alive = False
        self._channel.close()
        await self._supervised.end_command()

    async def _next_output(self, running: _RunningCode) -> CommandOutput | None:
        while not running.marked.is_complete:
            try:
                async with asyncio.timeout_at(running.deadline):
                    piece = await self._supervised.read_piece()
            except TimeoutError:
                if running.reason != "ended":
                    break
                self._interrupt_code(running, "late")
                continue
            if piece is None:
                running.reason = "died"
                break
            if text := running.decode_output(*piece):
                return CommandOutput(piece[0], text)
            if running.output_bytes > OUTPUT_BYTES_MAX and running.reason == "ended":
                self._interrupt_code(running, "flood")
        return None

    async def _finish_code(self, running: _RunningCode) -> CodeEnded:
        problem, answer = "", b""
        if running.marked.is_complete:
            # A pending interrupt would hit the next piece of code.
            if running.is_interrupted and await wait_readable(self._supervised.link, GRACE_S):
                self._supervised.link.recv(1)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    answer = await asyncio.get_running_loop().sock_recv(self._channel, 16)
        elif running.reason == "died":
            command_exit = read_exit(self._supervised.link)
            problem = command_exit.error or (
                f"signal {-command_exit.status}" if command_exit.status < 0 else f"exit code {command_exit.status}"
            )
        if not answer:
            await self.close()
        return CodeEnded(running.reason, answer == b"1" and running.reason == "ended", problem)

    def _interrupt_code(
        self, running: _RunningCode, reason: Literal["late", "flood"], grace_s: float = GRACE_S
    ) -> None:
        running.reason, running.deadline = reason, asyncio.get_running_loop().time() + grace_s
        if not running.is_interrupted:
            running.is_interrupted = True
            with suppress(OSError):
                self._supervised.link.send(b"i")


@dataclass(slots=True)
class _RunningCode:
    marked: MarkedOutput
    deadline: float

    reason: Literal["ended", "late", "flood", "died"] = "ended"
    is_interrupted: bool = False
    output_bytes: int = 0
    _decoders: dict[Stream, codecs.IncrementalDecoder] = field(
        default_factory=lambda: {
            stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in STREAMS.values()
        }
    )

    def decode_output(self, stream: Stream, data: bytes) -> str:
        data = self.marked.take_output(stream, data)
        self.output_bytes += len(data)
        return "" if self.output_bytes > OUTPUT_BYTES_MAX else self._decoders[stream].decode(data)


async def start_session(policy: Policy, allow: AllowList | None = None) -> InterpreterSession:
    """Start an interpreter, with its command filled into `policy`. Raises OSError."""
    channel, theirs = socket.socketpair()
    channel.setblocking(False)
    number = theirs.fileno()
    policy = policy._replace(
        command=(INTERPRETER, "-I", REPL, str(number), *PACKAGES),
        channel=number,
        readable=(*policy.readable, REPL, *PACKAGES),
        limits=LIMITS
        if policy.space is None
        else LIMITS._replace(file_bytes=min(LIMITS.file_bytes, policy.space.bytes_max)),
        timeout_s=LIFE_S_MAX,
    )
    try:
        with theirs:
            session = InterpreterSession(channel, await start_command(policy, allow))
    except BaseException:
        channel.close()
        raise
    await session.wait_ready()
    return session


class MarkedOutput:
    """Output up to the mark; bytes after it stay in `held` for the next code."""

    def __init__(self, token: str, held: dict[Stream, bytes]) -> None:
        self.text = f"\0{token}\0"
        self._mark = self.text.encode()
        self._held = held
        self._missing = set(STREAMS.values())

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def take_output(self, stream: Stream, data: bytes) -> bytes:
        data = self._held.pop(stream, b"") + data
        if stream not in self._missing:
            # Something still prints: the next piece gets a trace of it.
            self._held[stream] = data[-len(self._mark) :]
            return b""
        before, mark, rest = data.partition(self._mark)
        if mark:
            self._missing.discard(stream)
        else:
            # The mark may begin in these bytes.
            start = data.find(b"\0", max(0, len(data) - len(self._mark) + 1))
            before, rest = (data, b"") if start < 0 else (data[:start], data[start:])
        if rest:
            self._held[stream] = rest
        return before
