"""gRPC servers with health checks and reflection; no other file creates servers.

Health is grpc.health.v1, with the names `chain` for a service and everything that it needs, and `live` for its process.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.auth.audit_records import Record, recording_refused
from services.runtime.auth.setup import open_authenticator
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.calls.addresses import LOCAL
from services.runtime.capacity import Capacity
from services.runtime.http2.server.server import Server
from services.runtime.local.network import NETWORK
from services.runtime.process import transport
from services.runtime.process.config import PLAIN, ServerSettings
from services.runtime.process.metrics import serving_metrics
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX
from services.runtime.rpc.health import SERVING, Health
from services.runtime.rpc.interceptors import CheckCall, RpcInterceptor
from services.runtime.rpc.reflection import add_reflection

STREAMS_MAX = 2048
"""Maximum concurrent calls of one connection to grpcio's server, which has no limit by default."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GrpcService:
    name: str
    """Full proto name, such as headrace.v1.MemoryService."""

    servicer: Any
    add: Callable[[Any, grpc.aio.Server], None]


@dataclass(frozen=True, slots=True)
class RunningServer:
    addresses: tuple[str, ...]
    """Listen addresses with the bound ports."""

    interceptor: RpcInterceptor

    metrics_address: str
    """The address of GET /metrics; empty if not served."""


@asynccontextmanager
async def serving_grpc(
    settings: ServerSettings,
    grpc_services: Sequence[GrpcService],
    *,
    peers: Mapping[str, grpc.aio.Channel] | None = None,
    is_usable: Callable[[], bool] = lambda: True,
    is_configured: Callable[[], bool] = lambda: True,
    drain: Callable[[], Awaitable[None]] | None = None,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    keys: StoredKeys | None = None,
    record_refused: Record | None = None,
    check_call: CheckCall | None = None,
) -> AsyncGenerator[RunningServer]:
    """Serve inside the block; on leaving it, turn not ready, call `drain()`, refuse new RPCs and give running ones
    drain_s. API keys of `keys` are accepted in addition to those of the file, and `record_refused` receives refused
    sign-ins. `check_call` may refuse calls of admitted callers.

    Raises OSError if an address cannot be bound or credentials cannot be read.
    """
    async with open_authenticator(settings.auth, keys, has_certificates=bool(settings.tls_ca)) as authenticator:
        interceptor = RpcInterceptor(
            Capacity(settings.streams_max, is_shared=not settings.auth.is_none), authenticator, check_call
        )
        server = _make_server([interceptor], settings, message_bytes_max)
        health = Health(peers or {}, is_usable, is_configured)
        await _add_services(server, grpc_services, health)
        probed = _make_server([], settings, EDGE_MESSAGE_BYTES_MAX)
        health_pb2_grpc.add_HealthServicer_to_server(health, probed)
        addresses = tuple(
            _bind_address(probed if address.startswith(PLAIN) else server, address) for address in settings.addresses
        )
        async with (
            recording_refused(authenticator.refused, record_refused),
            serving_metrics(settings.metrics_listen) as metrics_address,
        ):
            await server.start()
            await probed.start()
            await health.set("", SERVING)
            log.info("serving", addresses=addresses, services=[item.name for item in grpc_services])
            try:
                yield RunningServer(addresses, interceptor, metrics_address)
            finally:
                await health.enter_graceful_shutdown()  # load balancers stop sending before we refuse
                try:
                    if drain is not None:
                        await drain()
                finally:
                    await server.stop(settings.drain_s)
                    await probed.stop(None)
                    log.info("stopped", addresses=addresses)


def _make_server(
    interceptors: Sequence[RpcInterceptor], settings: ServerSettings, message_bytes_max: int
) -> grpc.aio.Server:
    age_s = settings.connection_age_s
    if (chosen := transport.get_transport()) != "grpcio":
        # The health checks of probes are not admitted calls, so probes remain strangers.
        return Server(
            interceptors=interceptors,
            message_bytes_max=message_bytes_max,
            connection_age_s=age_s,
            knows_callers=True,
            network=NETWORK.get() if chosen == "local" else None,
            reuse_port=settings.reuse_port,
        )
    options = _make_options(message_bytes_max, age_s, reuse_port=settings.reuse_port)
    return grpc.aio.server(interceptors=interceptors, options=options)


async def _add_services(server: grpc.aio.Server, served: Sequence[GrpcService], health: Health) -> None:
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    for item in served:
        item.add(item.servicer, server)
        await health.set(item.name, SERVING)
    names = [item.name for item in served]
    add_reflection(server, [*names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name])


def _make_options(message_bytes_max: int, connection_age_s: float, *, reuse_port: bool) -> list[tuple[str, int]]:
    return [
        *([("grpc.max_connection_age_ms", int(connection_age_s * 1000))] if connection_age_s else []),
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        # With a table, a hundred bytes can name headers of 16 KiB; without a limit, calls take memory as fast as they
        # arrive.
        ("grpc.http2.hpack_table_size.decoder", 0),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        # Two servers on one port share its calls silently, which must be requested explicitly.
        ("grpc.so_reuseport", int(reuse_port)),
        # A thinking model is silent for minutes: pings in the meantime must not end in too_many_pings.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _bind_address(server: grpc.aio.Server, address: str) -> str:
    where = address.removeprefix(PLAIN)
    path = where.removeprefix("unix:")
    if path != where and _is_in_use(path):
        raise OSError(f"cannot listen on {address}: another process does")
    certificates = None if where != address else transport.load_certificates()
    try:
        if certificates is None:
            port = server.add_insecure_port(where)
        elif isinstance(server, Server):
            port = server.add_port(where, certificates.make_server_context())
        else:
            raise RuntimeError(f"{transport.CERT} needs {transport.VARIABLE}=h2")
    except (RuntimeError, OSError) as error:
        raise OSError(f"cannot listen on {address}: is something else listening there?") from error
    return address if path != where or where.startswith(LOCAL) else f"{address.rpartition(':')[0]}:{port}"


def _is_in_use(path: str) -> bool:
    """Return whether a process listens on the socket, which gRPC would silently replace."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) in (0, errno.EAGAIN)
