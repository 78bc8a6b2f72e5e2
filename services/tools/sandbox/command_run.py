"""Runs one command; leaving early kills it and all it started."""

from __future__ import annotations

import codecs
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from services.runtime.net.allow_list import AllowList
from services.tools.sandbox.confinement.policy import Policy
from services.tools.sandbox.supervised_command import STREAMS, AllowBegin, Stream, begin_at_once, start_command
from services.tools.sandbox.supervisor.launch import INTERRUPTED

OUTPUT_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Output in whole characters; bytes that are not UTF-8 become U+FFFD."""

    stream: Stream
    text: str


@dataclass(frozen=True, slots=True)
class CommandExit:
    reason: Literal["exited", "timeout", "flood", "full", "failed"]
    """`failed`: it was not started or its supervisor died, as `error` says; `flood`: more than OUTPUT_BYTES_MAX of
    output; `full`: it wrote more than it may, as `error` says."""

    status: int = 0
    """Exit code; negative: the signal that ended the command."""

    error: str = ""


Event = CommandOutput | CommandExit


async def stream_command(
    policy: Policy, allow: AllowList | None = None, allow_begin: AllowBegin = begin_at_once
) -> AsyncGenerator[Event]:
    """Streams output and, last, the CommandExit; consume this under `aclosing`, because closing ends the command.
    `allow` has the hosts it may reach, where the policy has a network; `allow_begin` is awaited before it begins."""
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
    """Reads how the command ended; the supervisor has exited by now, so this does not wait."""
    message = b""
    with suppress(ConnectionResetError):  # it was killed before it read what we sent
        message = link.recv(8192).lstrip(INTERRUPTED)  # answers to interrupts
    return CommandExit(**json.loads(message)) if message else CommandExit("failed", error="its supervisor was killed")
