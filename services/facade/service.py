"""The HTTP server: its routes, and serving until it is drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog
from aiohttp import web

from services.facade.a2a import routes as a2a
from services.facade.a2a.grpc_server import serving_a2a
from services.facade.adapters.runs import PublishedAgents
from services.facade.agui import routes as agui
from services.facade.config import Config
from services.facade.connection import Connection
from services.facade.console import serving as console
from services.facade.handlers.health import make_readyz_handler, serve_healthz
from services.facade.handlers.rpc import make_handler
from services.facade.mcp_server import routes as mcp_server
from services.facade.middleware.cors import Cors
from services.facade.middleware.credentials import CredentialCheck
from services.facade.middleware.open_requests import OpenRequests
from services.facade.middleware.page_guard import PageGuard
from services.facade.middleware.request_lifecycle import add_headers, handle_request, redirect_slashes
from services.facade.openai_api import routes as openai_api
from services.facade.openai_api.errors import convert_failures
from services.facade.openapi.document import serve_document
from services.facade.proto_routes import load_routes
from services.facade.responses.frame_writer import StreamTimeouts
from services.facade.sign_in.setup import add_sign_in
from services.facade.unauthenticated import UnauthenticatedConnections
from services.runtime.auth.audit_records import AuditRecords, recording_refused
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.callers import FACADE
from services.runtime.auth.setup import following_memory_keys, open_authenticator
from services.runtime.calls.addresses import describe_address
from services.runtime.net.listening import ANY, bind_port
from services.runtime.process.metrics import serving_metrics
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX
from services.runtime.rpc.push_stream import Watches

SHUTDOWN_TIMEOUT_S = 0.2
"""Maximum wait for connections to close after the drain; aiohttp waits twice this time."""

BACKLOG = 128
"""Maximum number of connections waiting to be accepted."""

log = structlog.get_logger()


@asynccontextmanager
async def serve(config: Config, peers: Mapping[str, grpc.aio.Channel]) -> AsyncGenerator[str]:
    """Serve inside the block, which gets the address (host:port).

    Leaving the block drains: open requests get `drain_s`, then the rest are disconnected.

    Raises:
        OSError: The address cannot be bound, or a credentials file cannot be read.
    """
    process = config.process
    shown = PublishedAgents(peers["orchestrator"], a2a.ADAPTER, config.publishing_adapters)
    audit = AuditRecords(peers["memory"], FACADE)
    async with (
        following_memory_keys(process.auth, peers["memory"]) as keys,
        open_authenticator(process.auth, keys, has_certificates=process.has_certificates) as authenticator,
        recording_refused(authenticator.refused, audit.count_refused()),
        serving_metrics(process.metrics_listen) as metrics_address,
        serving_a2a(config.a2a_server, shown, peers, keys, audit.count_refused()) as a2a_listens,
    ):
        open_requests, unauthenticated, watches = OpenRequests(), UnauthenticatedConnections(), Watches()
        application = _build_application(config, peers, open_requests, authenticator, unauthenticated, watches)
        grpc_address = config.a2a_address or _name_port(a2a_listens)
        a2a.add_routes(application, peers, _make_timeouts(config), shown, watches, grpc_address=grpc_address)
        runner = web.AppRunner(
            application,
            handler_cancellation=True,  # a disconnect cancels the RPC even while nothing is written
            shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
        await runner.setup()
        assert runner.server is not None, "it has been set up"
        try:
            listeners = await _listen(config, runner.server, unauthenticated)
            try:
                address = describe_address((config.host.strip("[]"), listeners[0].sockets[0].getsockname()[1]))
                log.info("serving", addresses=[address], metrics=metrics_address)
                yield address
            finally:
                for listener in listeners:
                    listener.close()  # not awaited: that would also wait for its connections (Python 3.12)
            runner.server.pre_shutdown()  # kept-alive connections get no further request
            watches.end_all()
            await open_requests.wait_until_zero(process.drain_s)
        finally:
            await runner.cleanup()
        log.info("stopped", addresses=[address], cut=open_requests.count)


async def _listen(
    config: Config, server: web.Server, unauthenticated: UnauthenticatedConnections
) -> list[asyncio.Server]:
    """Listen on the port, and on the Unix socket if one is configured."""
    loop = asyncio.get_running_loop()
    # Any: aiohttp's types do not allow for a missing access log.
    settings: dict[str, Any] = {
        "access_log": None,  # `handle_request` logs each request
        "auto_decompress": False,  # compressed bodies are refused: a small one may hide gigabytes
        "keepalive_timeout": config.idle_s,
        "max_field_size": 16380,  # browsers send a host the cookies of all its ports
    }

    def connection() -> Connection:
        return Connection(server, unauthenticated, config.slow_reader_s, loop=loop, **settings)

    reuse_port = config.process.reuse_port
    if config.host.strip("[]") == ANY:  # asyncio would listen at addresses of IPv6 alone
        sockets, _ = bind_port(f"{config.host}:{config.port}", reuse_port=reuse_port)
        listeners = [await loop.create_server(connection, sock=item, backlog=BACKLOG) for item in sockets]
    else:
        # Even a False raises on systems without it.
        listener = await loop.create_server(
            connection, config.host, config.port, backlog=BACKLOG, reuse_port=reuse_port or None
        )
        if not listener.sockets:  # asyncio ignores a socket that the system refuses
            raise OSError(f"no socket could be opened for {config.host}:{config.port}")
        listeners = [listener]
    if config.socket:
        listeners.append(await loop.create_unix_server(connection, config.socket, backlog=BACKLOG))
    return listeners


def _make_timeouts(config: Config) -> StreamTimeouts:
    return StreamTimeouts(config.heartbeat_s, config.slow_reader_s)


def _name_port(address: str) -> str:
    """Return :port of a listen address, because its host may not be reachable; a Unix socket's address is
    unchanged.
    """
    return address if not address or address.startswith("unix:") else f":{address.rpartition(':')[2]}"


def _build_application(
    config: Config,
    peers: Mapping[str, grpc.aio.Channel],
    open_requests: OpenRequests,
    authenticator: Authenticator,
    unauthenticated: UnauthenticatedConnections,
    watches: Watches,
) -> web.Application:
    cors = Cors(config.origins)
    guard = PageGuard(config.origins, config.served_hosts)
    middlewares = [open_requests.count_request, unauthenticated.follow_request]
    middlewares += [convert_failures, handle_request, guard.refuse_foreign_pages]
    if config.origins:
        middlewares.append(cors.answer_preflight)
    application = web.Application(middlewares=middlewares, client_max_size=EDGE_MESSAGE_BYTES_MAX)
    sessions = add_sign_in(application.router, config.sign_in, config.process.auth, authenticator.refused)
    application.middlewares.append(CredentialCheck(authenticator, sessions).check_credentials)
    application.middlewares.extend([unauthenticated.note_admitted, redirect_slashes])
    application.on_response_prepare.append(add_headers)
    if config.origins:
        application.on_response_prepare.append(cors.add_headers)
    timeouts = _make_timeouts(config)
    for route in load_routes():
        answer = make_handler(route, peers[route.peer], timeouts, watches)
        application.router.add_route(route.verb, route.path, answer)
        if route.is_file:
            application.router.add_head(route.path, answer)
    openai_api.add_routes(application, peers, timeouts, watches, is_shared=not config.process.auth.is_none)
    for adapter in (agui, mcp_server):
        adapter.add_routes(application, peers, timeouts, config.publishing_adapters, watches)
    console.add_routes(application)
    application.router.add_get("/healthz", serve_healthz)
    application.router.add_get("/readyz", make_readyz_handler(peers))
    application.router.add_get("/openapi.json", serve_document)
    return application
