"""One command under its supervisor, seen from the service; leaving early kills it and all it started."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import structlog

from services.runtime.net.allow_list import AllowList
from services.tools.sandbox import bubblewrap
from services.tools.sandbox.network_proxy import Proxy
from services.tools.sandbox.supervisor.launch import INTERRUPTED
from services.tools.sandbox.supervisor.policy import GO, READY, Policy

log = structlog.get_logger()

BUFFER_BYTES_MAX = 256 * 1024
"""Maximum output that waits for a slow reader; beyond it the command waits, too."""

START_S = 60.0
"""Time for a start, which takes 30 ms on an idle machine."""

LEAVE_S = 12.0
"""Time to wait for a command's end; the supervisor kills everything in less."""

SOURCE = str(Path(__file__).parents[3])
START = f"import sys; sys.path.insert(0, {SOURCE!r}); from services.tools.sandbox.supervisor.launch import main; main()"
INTERPRETER = os.path.realpath(sys.executable)
"""Resolved, because a virtual environment's interpreter is a link to a place that the sandbox does not show."""

AllowBegin = Callable[[], Awaitable[None]]
"""Returns when a command may begin; raises if it may not."""

Stream = Literal["stdout", "stderr"]
STREAMS: dict[int, Stream] = {1: "stdout", 2: "stderr"}

HAND_OVER_S = 10.0
"""Time for the supervisor to hand over the socket that the proxy listens on."""

OUTPUT_BYTES_MAX = 4 * 1024 * 1024


async def start_command(policy: Policy, allow: AllowList | None = None) -> SupervisedCommand:
    """Start a command, which the caller must end with `end_command`. Raises OSError if the machine lacks resources."""
    needed = (INTERPRETER, str(Path(__file__).parent))
    wrapper = bubblewrap.build_arguments(policy, needed) if policy.namespaces else ()
    link, child_link = socket.socketpair()
    try:
        with child_link, _open_memory_file(policy.to_json()) as policy_fd:
            _, command = await asyncio.get_running_loop().subprocess_exec(
                lambda: SupervisedCommand(link),
                *(*wrapper, INTERPRETER, "-I", "-S", "-c", START, str(child_link.fileno()), policy.mark),
                stdin=policy_fd,
                pass_fds=(child_link.fileno(), *(() if policy.channel is None else (policy.channel,))),
                start_new_session=True,
                env={},
            )
    except BaseException:
        link.close()
        raise
    if policy.network and allow is not None:
        try:
            command.proxy = await _start_proxy(link, allow)
        except BaseException:
            await command.end_command()
            raise
    return command


async def _start_proxy(link: socket.socket, allow: AllowList) -> Proxy | None:
    """Start a proxy, which the caller must close; None if the supervisor ended before it handed over the socket."""
    if not await wait_readable(link, HAND_OVER_S):
        return None
    message, listeners, _, _ = socket.recv_fds(link, 1, 1)
    if not message or not listeners:
        return None
    proxy = Proxy(allow)
    await proxy.serve(socket.socket(fileno=listeners[0]))
    return proxy


@contextmanager
def _open_memory_file(text: str) -> Generator[int]:
    fd = os.memfd_create("policy")
    try:
        with open(fd, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


async def begin_at_once() -> None:
    """Let a command begin without a record."""


class SupervisedCommand(asyncio.SubprocessProtocol):
    """A command under its supervisor; one task reads its bounded output."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        """Socket to the supervisor: a byte interrupts the command, closing ends it, and the last message states how it
        ended."""
        self.proxy: Proxy | None = None
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
            for pipe in self._open_pipes():
                pipe.pause_reading()

    def process_exited(self) -> None:
        """Handle the supervisor's exit. If it was killed, it could not remove its processes, so their output is not
        awaited."""
        assert self._transport is not None
        if self._transport.get_returncode():
            for pipe in self._open_pipes():
                pipe.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        assert self._transport is not None
        self._transport.close()  # asyncio complains of a transport that is done and not closed
        self._closed.set()
        self._changed.set()

    async def begin(self, allow_begin: AllowBegin) -> None:
        """Let the command begin once it is confined and `allow_begin` has returned; until then it does nothing.

        One that could not be confined never begins, and reports why on the link.

        Raises:
            OSError: It was not ready in time.
        """
        if not await wait_readable(self.link, START_S):
            raise OSError(f"it was not ready after {START_S:g} s")
        if self.link.recv(1, socket.MSG_PEEK) != READY:
            return
        self.link.recv(1)
        await allow_begin()
        assert self._transport is not None
        # Below one that was killed, a process of the sandbox may live on for a moment, and would begin.
        if self._transport.get_returncode() is None:
            with suppress(OSError):  # it has just died
                self.link.send(GO)

    async def read_piece(self) -> tuple[Stream, bytes] | None:
        while not self._pieces:
            if self._closed.is_set():
                return None
            self._changed.clear()
            await self._changed.wait()
        piece = self._pieces.popleft()
        before, self._waiting_bytes = self._waiting_bytes, self._waiting_bytes - len(piece[1])
        if before > BUFFER_BYTES_MAX >= self._waiting_bytes:
            for pipe in self._open_pipes():
                pipe.resume_reading()
        return piece

    async def end_command(self) -> None:
        """Wait until the supervisor has killed everything and exited."""
        self.link.close()
        if self.proxy is not None:
            await self.proxy.close()
        for pipe in self._open_pipes():
            pipe.close()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._closed.wait()
        except TimeoutError:
            log.warning("command still ending", waited_s=LEAVE_S)

    def _open_pipes(self) -> list[asyncio.ReadTransport]:
        assert self._transport is not None
        pipes = [cast("asyncio.ReadTransport", self._transport.get_pipe_transport(fd)) for fd in STREAMS]
        return [pipe for pipe in pipes if not pipe.is_closing()]


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Output in complete characters; bytes that are not UTF-8 become U+FFFD."""

    stream: Stream
    text: str


@dataclass(frozen=True, slots=True)
class CommandExit:
    reason: Literal["exited", "timeout", "flood", "full", "failed"]
    """`failed`: it was not started or its supervisor died, see `error`; `flood`: more than OUTPUT_BYTES_MAX of output;
    `full`: it wrote more than allowed, see `error`."""

    status: int = 0
    """Exit code; if negative, the signal that ended the command."""

    error: str = ""


Event = CommandOutput | CommandExit


async def stream_command(
    policy: Policy, allow: AllowList | None = None, allow_begin: AllowBegin = begin_at_once
) -> AsyncGenerator[Event]:
    """Stream the command's output and, last, the CommandExit; consume this under `aclosing`, because closing ends the
    command.

    `allow` lists the hosts it may reach, if the policy has a network; `allow_begin` is awaited before it begins.
    """
    try:
        command = await start_command(policy, allow)
    except OSError as error:
        yield CommandExit("failed", error=str(error))
        return
    try:
        try:
            await command.begin(allow_begin)
        except OSError as error:
            yield CommandExit("failed", error=str(error))
            return
        decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in STREAMS.values()}
        taken_bytes = 0
        while (piece := await command.read_piece()) and taken_bytes <= OUTPUT_BYTES_MAX:
            stream, data = piece
            taken_bytes += len(data)
            if text := decoders[stream].decode(data):
                yield CommandOutput(stream, text)
        for stream in STREAMS.values():
            if text := decoders[stream].decode(b"", final=True):
                yield CommandOutput(stream, text)
        yield CommandExit("flood") if taken_bytes > OUTPUT_BYTES_MAX else read_exit(command.link)
    finally:
        await command.end_command()


def read_exit(link: socket.socket) -> CommandExit:
    """Return how the command ended; the supervisor has exited already, so this does not wait."""
    message = b""
    with suppress(ConnectionResetError):  # it was killed before it read our message
        message = link.recv(8192).lstrip(INTERRUPTED)  # answers to interrupts
    return CommandExit(**json.loads(message)) if message else CommandExit("failed", error="its supervisor was killed")


async def wait_readable(link: socket.socket, timeout_s: float) -> bool:
    """Wait until the link can be read; return False at the timeout."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(link, ready.set)
    try:
        async with asyncio.timeout(timeout_s):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(link)
    return True
