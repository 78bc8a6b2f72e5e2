"""The contract: every RPC of the suite with its options, read from the proto descriptors.

Permissions, routes, clients, reference pages and tests are derived from here. A new file in protos/ is found
automatically.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from pkgutil import iter_modules
from typing import Any

from google.api import annotations_pb2, http_pb2
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import headrace.v1
from headrace.v1 import common_pb2

PUBLIC = frozenset({"client", "facade", "orchestrator"})
"""Callers that `public` includes. Orchestrators call each other because a run's owner answers."""

_HTTP: Any = annotations_pb2.http


@dataclass(frozen=True, slots=True)
class Rpc:
    descriptor: MethodDescriptor
    service: str
    """Name of the gRPC service, such as MemoryService."""
    server: str
    """Service of the suite that answers, such as memory."""
    callers: frozenset[str]
    without_user: bool
    creates: bool
    scope: str
    """Required scope; empty if every credential suffices."""
    audit: str
    """Event in the audit log; empty if none is logged."""
    client: common_pb2.ClientCall | None
    """Method of the Python clients; None if there is none or it is written by hand."""
    http: http_pb2.HttpRule | None
    """HTTP route; None if there is none."""

    @property
    def name(self) -> str:
        """Name such as `MemoryService.GetChat`."""
        return f"{self.service}.{self.descriptor.name}"

    @property
    def path(self) -> str:
        """Name of the RPC on the wire, such as `/headrace.v1.MemoryService/GetChat`."""
        return f"/{self.descriptor.containing_service.full_name}/{self.descriptor.name}"

    @property
    def request(self) -> type[Message]:
        return GetMessageClass(self.descriptor.input_type)

    @property
    def response(self) -> type[Message]:
        return GetMessageClass(self.descriptor.output_type)


def _read_rpc(descriptor: MethodDescriptor) -> Rpc:
    options = descriptor.GetOptions()
    service = descriptor.containing_service
    defaults = service.GetOptions().Extensions
    words = set(options.Extensions[common_pb2.callers] or defaults[common_pb2.default_callers])
    return Rpc(
        descriptor=descriptor,
        service=service.name,
        server=defaults[common_pb2.server],
        callers=frozenset(words - {"public"} | PUBLIC if "public" in words else words),
        without_user=options.Extensions[common_pb2.without_user],
        creates=options.Extensions[common_pb2.creates],
        scope=options.Extensions[common_pb2.scope],
        audit=options.Extensions[common_pb2.audit],
        client=options.Extensions[common_pb2.client] if options.HasExtension(common_pb2.client) else None,
        http=options.Extensions[_HTTP] if options.HasExtension(_HTTP) else None,
    )


FILES: list[FileDescriptor] = [
    import_module(f"headrace.v1.{name}").DESCRIPTOR
    for name in sorted(module.name for module in iter_modules(headrace.v1.__path__))
    if name.endswith("_pb2")
]

SERVICES: dict[str, ServiceDescriptor] = {
    service.name: service for file in FILES for service in file.services_by_name.values()
}

RPCS: dict[str, Rpc] = {rpc.path: rpc for service in SERVICES.values() for rpc in map(_read_rpc, service.methods)}
"""RPCs by path."""


def find_comment(full_name: str) -> str:
    """Return the proto's comment of a message, field or RPC; empty if it has none."""
    return _load_comments().get(full_name, "")


@cache
def _load_comments() -> dict[str, str]:
    return json.loads((resources.files("headrace.v1") / "comments.json").read_bytes())
