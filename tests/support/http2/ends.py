"""A server and a channel, each on one stack: ours, grpcio's, or ours in memory. A test's handlers receive and return
bytes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import grpc
import pytest

from services.runtime.calls.addresses import Address, Target, describe_address, parse_target
from services.runtime.calls.channel import DialingChannel
from services.runtime.calls.ends import ClientEnd
from services.runtime.http2.server.server import Server
from services.runtime.local.network import NETWORK, LocalDialer, LocalNetwork
from services.runtime.local.stream import Link
from tests.support.http2.channel import Channel
from trials.simulation.world.network import QueuedLink

Stack: TypeAlias = Literal["ours", "grpcio", "local", "queued"]
"""`queued` is `local` with the links of a simulation, each delivery in a later turn of the loop."""
Add: TypeAlias = Callable[[grpc.aio.Server], None]

SERVICE = "test.Test"
ANYWHERE = "127.0.0.1:0"

BYTES_MAX = 4 * 1024 * 1024
"""Of one message, at both ends."""

TEST_TIMEOUT_S = 200.0
SILENCE_S = 600.0
"""Longer than any test: only leaving ends it."""

between = pytest.mark.parametrize(
    ("client", "server"),
    [("ours", "ours"), ("grpcio", "ours"), ("ours", "grpcio"), ("local", "local"), ("queued", "queued")],
    ids=lambda stack: stack,
)
"""Every pair of ends of which one is ours, the client first."""


class QueuedNetwork(LocalNetwork):
    def make_link(self, context: Context) -> Link:
        return QueuedLink(lambda deliver, to: asyncio.get_running_loop().call_soon(deliver, context=to), context)


QUEUED = QueuedNetwork()


def handlers(*, unary: Any = None, stream: Any = None, upload: Any = None, both: Any = None) -> Add:
    """A service whose methods are named as their kinds."""
    methods = {
        "unary": unary and grpc.unary_unary_rpc_method_handler(unary),
        "stream": stream and grpc.unary_stream_rpc_method_handler(stream),
        "upload": upload and grpc.stream_unary_rpc_method_handler(upload),
        "both": both and grpc.stream_stream_rpc_method_handler(both),
    }
    named = {name: method for name, method in methods.items() if method is not None}

    def add(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, named),))

    return add


def make_server(stack: Stack) -> grpc.aio.Server:
    """A server that is not started."""
    if stack != "grpcio":
        networks = {"local": NETWORK.get(), "queued": QUEUED}
        return Server(message_bytes_max=BYTES_MAX, network=networks.get(stack))
    return grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", BYTES_MAX)])


@asynccontextmanager
async def serving(stack: Stack, *adds: Add, address: str = ANYWHERE) -> AsyncGenerator[tuple[grpc.aio.Server, str]]:
    """Run a server; yield it and its address. It is stopped without grace unless the test has stopped it."""
    server = make_server(stack)
    for add in adds:
        add(server)
    port = server.add_insecure_port(address)
    await server.start()
    try:
        is_name = address.startswith(("unix:", "local:"))
        yield server, address if is_name else f"{address.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(None)


@dataclass(frozen=True)
class NoDialer:
    """Refuses every connection: only servers in memory can be reached."""

    target: Target

    async def open_connection(self, address: Address, on_free: Any, on_gone: Any) -> ClientEnd:
        raise OSError(f"cannot connect to {describe_address(address)}: not in memory")


def channel(stack: Stack, address: str) -> grpc.aio.Channel:
    """Return a channel that reconnects quickly."""
    if stack in ("local", "queued"):
        network = NETWORK.get() if stack == "local" else QUEUED
        return DialingChannel(LocalDialer(network, BYTES_MAX, NoDialer(parse_target(address))))
    if stack == "ours":
        return Channel(address, message_bytes_max=BYTES_MAX)
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_receive_message_length", BYTES_MAX),
        ("grpc.max_metadata_size", 64 * 1024),
    ]
    return grpc.aio.insecure_channel(address, options=options)


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    """Return a call's status code."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


class Caller:
    """The methods of `handlers`, called over one channel with bytes."""

    def __init__(self, over: grpc.aio.Channel) -> None:
        self.channel = over
        self.unary: Any = over.unary_unary(f"/{SERVICE}/unary")
        self.stream: Any = over.unary_stream(f"/{SERVICE}/stream")
        self.upload: Any = over.stream_unary(f"/{SERVICE}/upload")
        self.both: Any = over.stream_stream(f"/{SERVICE}/both")


@asynccontextmanager
async def connecting(client: Stack, server: Stack, *adds: Add, address: str = ANYWHERE) -> AsyncGenerator[Caller]:
    """Yield a caller of a server, for at most a test's timeout."""
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving(server, *adds, address=address) as (_, where),
        channel(client, where) as over,
    ):
        yield Caller(over)
