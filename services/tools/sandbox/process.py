"""Running one command: its output as it comes, and its end; leaving early kills it and all it started."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import structlog

from services.tools.sandbox.policy import Policy

log = structlog.get_logger()

OUTPUT_BYTES_MAX = 4 * 1024 * 1024
"""Of both streams together. A command that says more is ended: a model sees 30,000 characters of it."""

BUFFER_BYTES_MAX = 256 * 1024
"""Output that waits for a slow reader; beyond it the command waits too."""

LEAVE_S = 12.0
"""Longer than the supervisor's sweep: leaving waits for it, so that nothing is left when it returns."""

SOURCE = str(Path(__file__).parents[3])
START = f"import sys; sys.path.insert(0, {SOURCE!r}); from services.tools.sandbox.launch import main; main()"

Stream = Literal["stdout", "stderr"]
STREAMS: dict[int, Stream] = {1: "stdout", 2: "stderr"}


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of output, whole characters only; bytes that are not UTF-8 come as U+FFFD."""

    stream: Stream
    text: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The end of a command, always last."""

    reason: Literal["exited", "timeout", "flood", "failed"]
    """failed: it was not started, or its supervisor died; `error` says why. flood: over OUTPUT_BYTES_MAX."""

    status: int = 0
    """Its exit code; negative: the signal that ended it."""

    error: str = ""


Event = Output | Exited


async def run(policy: Policy) -> AsyncGenerator[Event]:
    """Run the command; the last event is its Exited. Consume it under `aclosing`: closing ends the command."""
    link, theirs = socket.socketpair()
    with link:
        command = await _start(policy, theirs)
        if isinstance(command, OSError):
            yield Exited("failed", error=str(command))
            return
        try:
            decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in STREAMS.values()}
            taken_bytes = 0
            while (piece := await command.take()) and taken_bytes <= OUTPUT_BYTES_MAX:
                stream, data = piece
                taken_bytes += len(data)
                if text := decoders[stream].decode(data):
                    yield Output(stream, text)
            for stream in STREAMS.values():
                if text := decoders[stream].decode(b"", final=True):
                    yield Output(stream, text)
            yield Exited("flood") if taken_bytes > OUTPUT_BYTES_MAX else _ending(link)
        finally:
            link.close()
            await command.leave()


async def _start(policy: Policy, link: socket.socket) -> _Command | OSError:
    """The supervisor, started with its end of the link; or why the machine has no room for it."""
    try:
        with link, _in_memory(policy.to_json()) as given:
            _, command = await asyncio.get_running_loop().subprocess_exec(
                _Command,
                *(sys.executable, "-I", "-S", "-c", START, str(link.fileno())),
                stdin=given,
                pass_fds=(link.fileno(),),
                start_new_session=True,
                env={},
            )
    except OSError as error:
        return error
    return command


@contextmanager
def _in_memory(text: str) -> Generator[int]:
    """A descriptor that reads `text`, and needs nobody to feed it."""
    fd = os.memfd_create("policy")
    try:
        with open(fd, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _ending(link: socket.socket) -> Exited:
    """What the supervisor said last; by now it has exited, so nothing is waited for."""
    said = link.recv(8192)
    return Exited(**json.loads(said)) if said else Exited("failed", error="its supervisor was killed")


class _Command(asyncio.SubprocessProtocol):
    """The supervisor's process as a bounded queue of its output. One task takes."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[Stream, bytes]] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._closed = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, and do not say so by their type.
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._pieces.append((STREAMS[fd], data))
        self._waiting_bytes += len(data)
        self._changed.set()
        if self._waiting_bytes > BUFFER_BYTES_MAX:
            for pipe in self._pipes():
                pipe.pause_reading()

    def process_exited(self) -> None:
        """A supervisor that was killed could not sweep: do not wait for the output of what it has left."""
        assert self._transport is not None
        if self._transport.get_returncode():
            for pipe in self._pipes():
                pipe.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The supervisor has exited and both pipes are read to their end."""
        del exc
        assert self._transport is not None
        self._transport.close()  # asyncio complains of a transport that is done and not closed
        self._closed.set()
        self._changed.set()

    async def take(self) -> tuple[Stream, bytes] | None:
        """The next piece; None after the last one."""
        while not self._pieces:
            if self._closed.is_set():
                return None
            self._changed.clear()
            await self._changed.wait()
        piece = self._pieces.popleft()
        before, self._waiting_bytes = self._waiting_bytes, self._waiting_bytes - len(piece[1])
        if before > BUFFER_BYTES_MAX >= self._waiting_bytes:
            for pipe in self._pipes():
                pipe.resume_reading()
        return piece

    async def leave(self) -> None:
        """Read no more and wait until the supervisor, whose link is closed by now, has killed everything and exited."""
        for pipe in self._pipes():
            pipe.close()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._closed.wait()
        except TimeoutError:
            log.warning("command still ending", waited_s=LEAVE_S)

    def _pipes(self) -> list[asyncio.ReadTransport]:
        assert self._transport is not None
        found = [cast("asyncio.ReadTransport", self._transport.get_pipe_transport(fd)) for fd in STREAMS]
        return [pipe for pipe in found if not pipe.is_closing()]
