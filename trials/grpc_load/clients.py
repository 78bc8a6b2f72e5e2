"""The clients: how each is built and called, and how its output is read."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

from headrace.v1 import llm_pb2
from trials.grpc_load.programs import MADE, make_ghz, make_grpc_js, make_judge

METHOD = "/headrace.v1.LlmService/StreamChat"
REQUEST = json.dumps({"provider_key": "p", "model": "m", "messages": [{"role": "user"}]})

CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""Status codes by number. https://github.com/grpc/grpc/blob/master/doc/statuscodes.md"""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream, as reported by its client."""

    seconds: float
    code: str
    details: str
    messages: int | None
    """None for a client that does not count messages."""


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    build_command: Callable[[str, int], list[str]]
    """Returns the command for an address and a number of streams; builds the program on first use."""

    read_output: Callable[[str], list[StreamEnd]]


def _read_lines(output: str) -> list[StreamEnd]:
    ends = [json.loads(line) for line in output.splitlines()]
    return [StreamEnd(end["seconds"], CODES[end["code"]], end["details"], end["messages"]) for end in ends]


def _read_ghz_report(output: str) -> list[StreamEnd]:
    details: list[dict[str, Any]] = json.loads(output)["details"]
    return [_read_ghz_call(call) for call in details]


def _read_ghz_call(call: dict[str, Any]) -> StreamEnd:
    # It writes codes as grpc-go does: DeadlineExceeded, and Canceled with one l.
    names = {code.replace("_", "").lower(): code for code in CODES} | {"canceled": "CANCELLED"}
    return StreamEnd(call["latency"] / 1e9, names[call["status"].lower()], call.get("error", ""), None)


def _build_ghz_command(address: str, streams: int) -> list[str]:
    load = ["--connections", "1", "-c", str(streams), "-n", str(streams), "--timeout", "0"]
    call = ["--protoset", str(_write_descriptors()), "--call", METHOD.removeprefix("/"), "-d", REQUEST]
    return [str(make_ghz()), "--insecure", *load, *call, "-O", "json", address]


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "grpc-go",
            lambda address, streams: [
                *(str(make_judge()), "load", address, str(_write_descriptors()), METHOD, REQUEST, str(streams))
            ],
            _read_lines,
        ),
        Client(
            "grpcio",
            lambda address, streams: [
                *(sys.executable, "-m", "trials.grpc_load.grpcio_client", address, METHOD, REQUEST, str(streams))
            ],
            _read_lines,
        ),
        Client(
            "grpc-js",
            lambda address, streams: [
                *("node", str(make_grpc_js()), address, str(_write_descriptors()), METHOD, REQUEST, str(streams))
            ],
            _read_lines,
        ),
        Client("ghz", _build_ghz_command, _read_ghz_report),
    )
}


def _write_descriptors() -> Path:
    """Return a file with the descriptors of the method's service, for clients without stubs."""
    file = MADE / "llm.binpb"
    MADE.mkdir(parents=True, exist_ok=True)
    found: dict[str, FileDescriptor] = {}
    _add_file(llm_pb2.DESCRIPTOR, found)
    written = descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto.FromString(item.serialized_pb) for item in found.values()]
    )
    made = file.with_suffix(".new")
    made.write_bytes(written.SerializeToString())
    made.replace(file)
    return file


def _add_file(file: FileDescriptor, found: dict[str, FileDescriptor]) -> None:
    """Add a file after those that it imports."""
    dependencies: Iterable[FileDescriptor] = file.dependencies
    for needed in dependencies:
        _add_file(needed, found)
    found.setdefault(file.name, file)
