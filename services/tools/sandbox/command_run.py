"""Running one command: its output as it comes, and its end; leaving early kills it and all it started."""

from __future__ import annotations

import codecs
import json
import socket
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from services.tools.net.allow_list import AllowList
from services.tools.sandbox.confinement.policy import Policy
from services.tools.sandbox.supervised_command import STREAMS, Stream, start
from services.tools.sandbox.supervisor.launch import INTERRUPTED

OUTPUT_BYTES_MAX = 4 * 1024 * 1024
"""Of both streams together. A command that says more is ended: a model sees 30,000 characters of it."""


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


async def run(policy: Policy, allow: AllowList | None = None) -> AsyncGenerator[Event]:
    """Run the command; the last event is its Exited. Consume it under `aclosing`: closing ends the command.

    `allow` is what it reaches over the network, where the policy has one.
    """
    try:
        command = await start(policy, allow)
    except OSError as error:
        yield Exited("failed", error=str(error))
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
        yield Exited("flood") if taken_bytes > OUTPUT_BYTES_MAX else ending(command.link)
    finally:
        await command.leave()


def ending(link: socket.socket) -> Exited:
    """What the supervisor said last; by now it has exited, so nothing is waited for."""
    said = link.recv(8192).lstrip(INTERRUPTED)  # answers that nobody has waited for
    return Exited(**json.loads(said)) if said else Exited("failed", error="its supervisor was killed")
