"""The client's errors when it reaches no server; each names the address and the cause."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from headrace.client import Client
from headrace.errors import ProviderUnavailable, Unsupported
from headrace.sync.client import Client as SyncClient
from headrace.tls import Tls
from services.runtime.process.config import ServerSettings
from services.runtime.process.transport import CA, CERT, KEY, VARIABLE
from services.runtime.rpc.server import serving_grpc
from tests.support.authority import Authority, Files
from tests.support.contract import make_services
from tests.support.facade.scripted import Script, ScriptedMemory, answering, make_peer_services
from tests.support.web_server import serving_web


async def fail(address: str, tls: Tls | None = None) -> str:
    """Return the error message, which must be the same for every kind of call."""
    async with asyncio.timeout(100), Client(address, tls=tls) as headrace:
        with pytest.raises(ProviderUnavailable) as unary:
            await headrace.agents()
        with pytest.raises(ProviderUnavailable) as streaming:
            async with headrace.ask("hi") as run:
                await anext(run)
    assert str(streaming.value) == str(unary.value)
    assert unary.value.retriable
    return str(unary.value)


def pick_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


async def test_a_port_without_a_listener_is_named() -> None:
    address = f"127.0.0.1:{pick_free_port()}"
    assert (await fail(address)).startswith(f"grpc: nothing listens at {address}: ")


async def test_the_sync_client_reports_the_same_error() -> None:
    address = f"127.0.0.1:{pick_free_port()}"
    with SyncClient(address) as headrace, pytest.raises(ProviderUnavailable, match=f"nothing listens at {address}: "):
        await asyncio.to_thread(headrace.agents)


async def test_an_http_port_is_recognized() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    async with serving_web(answer) as port:
        address = f"127.0.0.1:{port}"
        assert (await fail(address)) == (
            f"grpc: {address} speaks HTTP/1.1: is that the facade's port? gRPC's is 7001 by default"
        )
        assert (await fail(address, Tls())).startswith(f"grpc: {address} speaks no TLS: ")


async def test_a_port_of_another_service_is_recognized() -> None:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    memory = make_services(MemoryService=ScriptedMemory())
    async with serving_grpc(settings, memory) as running, Client(running.addresses[0]) as headrace:
        with pytest.raises(Unsupported, match=r"AgentService/ListAgents.* is that another service's port\?"):
            await headrace.agents()
        with pytest.raises(Unsupported, match=r"AgentService/Query.* is that another service's port\?"):
            async with headrace.ask("hi") as run:
                await anext(run)


@pytest.mark.parametrize("address", ["http://127.0.0.1:7001", "https://desk.example", "127.0.0.1:7001/api", ""])
async def test_a_malformed_address_is_named(address: str) -> None:
    assert (await fail(address)).startswith(f"grpc: {address or repr('')} is no address: write host:port")


async def test_an_unresolvable_name_is_named() -> None:
    assert (await fail("nobody.invalid:7001")) == "grpc: the name in nobody.invalid:7001 has no address"


@asynccontextmanager
async def serving_tls(files: Files, monkeypatch: pytest.MonkeyPatch, *, ca: str = "") -> AsyncGenerator[str]:
    """Serve over TLS; with `ca`, callers must show a certificate."""
    for name, value in ((VARIABLE, "h2"), (CERT, files.cert), (KEY, files.key), (CA, ca)):
        monkeypatch.setenv(name, value)
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0, tls_cert=files.cert, tls_key=files.key, tls_ca=ca)
    async with serving_grpc(settings, make_peer_services(Script(query=answering("a")), ScriptedMemory())) as running:
        yield running.addresses[0]


async def test_a_tls_mismatch_is_explained(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    files = authority.issue("orchestrator")
    async with serving_tls(files, monkeypatch) as address:
        assert (await fail(address)) == f"grpc: {address} closed the connection: does it speak TLS (tls=Tls())?"
        assert (await fail(address, Tls())) == (
            f"grpc: the certificate of {address} is not trusted: name its CA, Tls(ca)"
        )


async def test_a_server_that_requires_a_certificate_is_named(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = authority.issue("orchestrator")
    async with serving_tls(files, monkeypatch, ca=files.ca) as address:
        assert address in await fail(address, Tls(files.ca))
