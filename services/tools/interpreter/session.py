"""One interpreter as the service sees it: pieces of code go in, their output comes out as it is printed.

Output comes over the pipes that every command has, so that what programs below the interpreter print streams too; a
random mark in both pipes says where the output of one piece ends.
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

from services.tools.interpreter.output_marks import Marked
from services.tools.net.allow_list import AllowList
from services.tools.sandbox.command_run import OUTPUT_BYTES_MAX, Output, ending
from services.tools.sandbox.confinement.policy import Limits, Policy
from services.tools.sandbox.link import readable
from services.tools.sandbox.supervised_command import INTERPRETER, STREAMS, Stream, Supervised, start

REPL = str(Path(__file__).with_name("repl.py"))
PACKAGES = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
"""The service's own packages, numpy and the like among them if they are installed."""

LIFE_S_MAX = 6 * 3600.0
"""No run takes longer."""

LIMITS = Limits(cpu_s=3600)
"""All calls of a run together."""

START_S = 30.0
"""Tens of milliseconds on an idle machine."""

GRACE_S = 2.0
"""After an interrupt, for the code to end; then the interpreter is killed."""

LEAVE_S = 0.3
"""The same when the caller has left, who is promised that everything stops within 500 ms."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a piece of code, always last."""

    reason: Literal["ended", "late", "flood", "died"]
    ok: bool = False
    problem: str = ""
    """Why the interpreter has died, where it did by itself."""


class Session:
    """A live interpreter, owned by Interpreters. One piece of code at a time."""

    def __init__(self, channel: socket.socket, supervised: Supervised) -> None:
        self._channel = channel
        self._supervised = supervised
        self._held: dict[Stream, bytes] = {}
        self.is_alive = True
        """False as soon as its variables are lost."""

    async def get_ready(self) -> None:
        """Wait for the interpreter to start. Raises OSError when it does not; it is closed then."""
        said = b""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    said = await asyncio.get_running_loop().sock_recv(self._channel, 1)
        finally:
            if not said:
                await self.close()
        if not said:
            raise OSError("it has ended at once, or does not answer")

    async def execute(self, code: str, timeout_s: float) -> AsyncGenerator[Output | Ended]:
        """Run the code; Ended comes last. Leaving early interrupts it. Consume it under `aclosing`."""
        running = _Running(Marked(secrets.token_hex(16), self._held), asyncio.get_running_loop().time() + timeout_s)
        try:
            with suppress(OSError):  # it has died meanwhile; its output ends then
                request = json.dumps({"mark": running.marked.text, "code": code}).encode() + b"\n"
                await asyncio.get_running_loop().sock_sendall(self._channel, request)
            while piece := await self._next(running):
                yield piece
            end = await self._end(running)
        except BaseException:  # the caller has left
            await self._stop(running)
            raise
        yield end

    async def close(self) -> None:
        """End the interpreter and all that it started; a second time nothing."""
        self.is_alive = False
        self._channel.close()
        await self._supervised.leave()

    async def _next(self, running: _Running) -> Output | None:
        """The next output; None when the code has ended, or will not."""
        while not running.marked.is_complete:
            try:
                async with asyncio.timeout_at(running.deadline):
                    piece = await self._supervised.take()
            except TimeoutError:
                if running.reason != "ended":
                    break
                self._interrupt(running, "late")
                continue
            if piece is None:
                running.reason = "died"
                break
            if text := running.text(*piece):
                return Output(piece[0], text)
            if running.taken_bytes > OUTPUT_BYTES_MAX and running.reason == "ended":
                self._interrupt(running, "flood")
        return None

    async def _end(self, running: _Running) -> Ended:
        problem, answer = "", b""
        if running.marked.is_complete:
            # An interrupt that is still on its way would hit the next piece of code.
            if running.is_interrupted and await readable(self._supervised.link, GRACE_S):
                self._supervised.link.recv(1)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    answer = await asyncio.get_running_loop().sock_recv(self._channel, 16)
        elif running.reason == "died":
            found = ending(self._supervised.link)
            problem = found.error or (f"signal {-found.status}" if found.status < 0 else f"exit code {found.status}")
        if not answer:
            await self.close()
        return Ended(running.reason, answer == b"1" and running.reason == "ended", problem)

    def _interrupt(self, running: _Running, reason: Literal["late", "flood"], grace_s: float = GRACE_S) -> None:
        """Ctrl-C, and from now on `grace_s` to end."""
        running.reason, running.deadline = reason, asyncio.get_running_loop().time() + grace_s
        if not running.is_interrupted:
            running.is_interrupted = True
            with suppress(OSError):
                self._supervised.link.send(b"i")

    async def _stop(self, running: _Running) -> None:
        """Interrupt code that nobody waits for, and kill what does not heed it; take its answer off the channel."""
        if not running.marked.is_complete:
            self._interrupt(running, "late", LEAVE_S)
        while await self._next(running):
            pass
        await self._end(running)


@dataclass(slots=True)
class _Running:
    """A piece of code on its way."""

    marked: Marked
    deadline: float
    """Of the loop's clock."""

    reason: Literal["ended", "late", "flood", "died"] = "ended"
    is_interrupted: bool = False
    taken_bytes: int = 0
    _decoders: dict[Stream, codecs.IncrementalDecoder] = field(
        default_factory=lambda: {
            stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in STREAMS.values()
        }
    )

    def text(self, stream: Stream, data: bytes) -> str:
        """What of it goes to the caller: nothing when there was too much."""
        data = self.marked.released(stream, data)
        self.taken_bytes += len(data)
        return "" if self.taken_bytes > OUTPUT_BYTES_MAX else self._decoders[stream].decode(data)


async def start_session(policy: Policy, allow: AllowList | None = None) -> Session:
    """An interpreter under `policy`, whose command is ours to say. Raises OSError when it does not start."""
    channel, theirs = socket.socketpair()
    channel.setblocking(False)
    number = theirs.fileno()
    policy = policy._replace(
        command=(INTERPRETER, "-I", REPL, str(number), *PACKAGES),
        channel=number,
        readable=(*policy.readable, REPL, *PACKAGES),
        limits=LIMITS,
        timeout_s=LIFE_S_MAX,
    )
    try:
        with theirs:
            session = Session(channel, await start(policy, allow))
    except BaseException:
        channel.close()
        raise
    await session.get_ready()
    return session
