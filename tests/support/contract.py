"""The contract's files and RPCs, read from its descriptors."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

import headrace.v1
from services.runtime.rpc.server import GrpcService

_MODULES = [module.name for module in iter_modules(headrace.v1.__path__) if module.name.endswith("_pb2")]

FILES: list[FileDescriptor] = [import_module(f"headrace.v1.{name}").DESCRIPTOR for name in _MODULES]

RPCS: dict[str, MethodDescriptor] = {
    f"{service.name}.{rpc.name}": rpc
    for file in FILES
    for service in file.services_by_name.values()
    for rpc in service.methods
}


def make_services(**servicers: Any) -> list[GrpcService]:
    """What a server serves, by the services' names."""
    files = {service: file for file in FILES for service in file.services_by_name}
    modules = {
        name: import_module(files[name].name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")
        for name in servicers
    }
    return [
        GrpcService(f"headrace.v1.{name}", servicer, getattr(modules[name], f"add_{name}Servicer_to_server"))
        for name, servicer in servicers.items()
    ]
