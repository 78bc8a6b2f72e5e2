"""RPCs of the contract by name, and their implementations in tests."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from headrace import contract
from headrace.contract import SERVICES
from services.runtime.rpc.server import GrpcService

RPCS: dict[str, MethodDescriptor] = {rpc.name: rpc.descriptor for rpc in contract.RPCS.values()}


def get_stubs(service: ServiceDescriptor) -> ModuleType:
    """Return the generated module with the service's stub and servicer."""
    return import_module(service.file.name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")


def make_services(**servicers: Any) -> list[GrpcService]:
    """Return the services of a server, from servicers by service name."""
    return [
        GrpcService(
            f"headrace.v1.{name}", servicer, getattr(get_stubs(SERVICES[name]), f"add_{name}Servicer_to_server")
        )
        for name, servicer in servicers.items()
    ]


def says(make: Callable[[Any, Any], Any]) -> Any:
    """Return an RPC method that answers with `make(servicer, request)`."""

    async def answer(self: Any, request: Any, context: Any) -> Any:
        return make(self, request)

    return answer


def hears(make: Callable[[Any, Any], Any]) -> Any:
    """Like `says`, for a servicer that records its requests."""

    async def answer(self: Any, request: Any, context: Any) -> Any:
        self.hear(request, context)
        return make(self, request)

    return answer
