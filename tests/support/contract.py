"""Every service and RPC of the contract, from what is generated of protos/headrace/v1: none can be left out."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor

from headrace import v1

_NAMES = [f"{v1.__name__}.{module.name}" for module in iter_modules(v1.__path__)]

FILES: list[FileDescriptor] = [import_module(name).DESCRIPTOR for name in _NAMES if name.endswith("_pb2")]
SERVICES: list[ServiceDescriptor] = [service for file in FILES for service in file.services_by_name.values()]
RPCS: list[MethodDescriptor] = [rpc for service in SERVICES for rpc in service.methods]


def get_stubs(service: ServiceDescriptor) -> ModuleType:
    """Return the generated module with the service's stub and servicer."""
    return import_module(service.file.name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")
