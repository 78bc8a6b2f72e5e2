"""TLS at both ends of our transport, with an authority made for the test."""

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest

from services.runtime.http2.limits import Limits
from services.runtime.http2.server.server import Server
from services.runtime.process.transport import Certificates
from tests.support.authority import Authority, Files
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, TEST_TIMEOUT_S, Caller, handlers
from tests.support.logged import Logged
from tests.support.timing import within

QUICK = Limits(preface_s=2.0, connect_s=5.0, last_calls_s=0.2, close_s=0.3)


async def return_peer_names(request: bytes, context: Any) -> bytes:
    """Return the names in the caller's certificate."""
    auth_context = context.auth_context()
    names = [*auth_context.get("x509_common_name", ()), *(context.peer_identities() or ())]
    return b" ".join([*auth_context.get("transport_security_type", [b"plain"]), *names])


def certificates(files: Files, *, mutual: bool = True) -> Certificates:
    return Certificates(files.cert, files.key, files.ca if mutual else "")


@asynccontextmanager
async def serving_tls(context: ssl.SSLContext) -> AsyncGenerator[int]:
    server = Server(message_bytes_max=BYTES_MAX, limits=QUICK)
    handlers(unary=return_peer_names)(server)
    port = server.add_port("127.0.0.1:0", context)
    await server.start()
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def calling(port: int, context: ssl.SSLContext | None, server_name: str | None = None) -> AsyncGenerator[Any]:
    provide = None if context is None else lambda: context
    async with Channel(
        f"127.0.0.1:{port}", message_bytes_max=BYTES_MAX, context=provide, server_name=server_name, limits=QUICK
    ) as channel:
        yield Caller(channel).unary


async def test_the_caller_is_identified_by_its_certificate(authority: Authority) -> None:
    server, client = certificates(authority.issue("memory")), certificates(authority.issue("orchestrator"))
    async with serving_tls(server.make_server_context()) as port, calling(port, client.get_client_context()) as call:
        response = await call(b"")
        assert response == b"ssl orchestrator localhost 127.0.0.1 spiffe://headrace/orchestrator"


async def test_without_mutual_tls_the_caller_has_no_name(authority: Authority) -> None:
    files = authority.issue("memory")
    trusting = ssl.create_default_context(cafile=files.ca)
    async with (
        serving_tls(certificates(files, mutual=False).make_server_context()) as port,
        calling(port, trusting) as call,
    ):
        assert await call(b"") == b"ssl"


async def call_refused(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", timeout=50)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


async def test_a_server_signed_by_another_authority_is_refused(authority: Authority, stranger: Authority) -> None:
    client = certificates(authority.issue("orchestrator"))
    server = certificates(stranger.issue("memory"), mutual=False)
    async with serving_tls(server.make_server_context()) as port, calling(port, client.get_client_context()) as call:
        assert "certificate verify failed" in await call_refused(call)


async def test_a_server_with_an_expired_certificate_is_refused(authority: Authority) -> None:
    client = certificates(authority.issue("orchestrator"))
    server = certificates(authority.issue("memory", valid_days=-1))
    async with serving_tls(server.make_server_context()) as port, calling(port, client.get_client_context()) as call:
        assert "expired" in await call_refused(call)


async def test_a_server_of_another_name_is_refused(authority: Authority) -> None:
    server, client = certificates(authority.issue("memory")), certificates(authority.issue("orchestrator"))
    async with (
        serving_tls(server.make_server_context()) as port,
        calling(port, client.get_client_context(), "memory.headrace") as call,
    ):
        assert "memory.headrace" in await call_refused(call)
    async with (
        serving_tls(server.make_server_context()) as port,
        calling(port, client.get_client_context(), "localhost") as call,
    ):
        assert await call(b"")


async def test_a_client_without_a_valid_certificate_is_refused(authority: Authority, stranger: Authority) -> None:
    own = authority.issue("memory")
    without = ssl.create_default_context(cafile=own.ca)
    foreign = ssl.create_default_context(cafile=own.ca)
    files = stranger.issue("orchestrator")
    foreign.load_cert_chain(files.cert, files.key)
    expired = certificates(authority.issue("tools", valid_days=-1)).get_client_context()
    async with serving_tls(certificates(own).make_server_context()) as port:
        for context in (without, foreign, expired, None):
            async with calling(port, context) as call:
                await call_refused(call)
        async with calling(port, certificates(authority.issue("orchestrator")).get_client_context()) as call:
            assert await call(b"")


async def test_a_tls_client_is_refused_by_a_server_without_tls(authority: Authority) -> None:
    server = Server(message_bytes_max=BYTES_MAX, limits=QUICK)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with calling(port, certificates(authority.issue("orchestrator")).get_client_context()) as call:
        await call_refused(call)
    await server.stop(None)


@pytest.mark.parametrize("protocols", [[], ["http/1.1"]], ids=["none", "another"])
async def test_a_client_that_does_not_negotiate_http2_is_disconnected(
    protocols: list[str], authority: Authority
) -> None:
    files = authority.issue("memory")
    context = ssl.create_default_context(cafile=files.ca)
    if protocols:
        context.set_alpn_protocols(protocols)
    async with serving_tls(certificates(files, mutual=False).make_server_context()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        assert await read_until_closed(reader) == b""
        writer.transport.abort()


async def read_until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return what arrives until the other end closes."""
    try:
        return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""


async def test_a_server_that_does_not_negotiate_http2_is_refused(authority: Authority) -> None:
    files = authority.issue("memory")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await read_until_closed(reader) == b"", "nothing is sent to it"
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    trusting = ssl.create_default_context(cafile=files.ca)
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S), calling(server.sockets[0].getsockname()[1], trusting) as call:
            assert "ALPN" in await call_refused(call)
    finally:
        server.close()


async def test_an_old_version_of_tls_is_refused(authority: Authority) -> None:
    files = authority.issue("memory")
    async with serving_tls(certificates(files, mutual=False).make_server_context()) as port:
        old = ssl.create_default_context(cafile=files.ca)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=old, server_hostname="localhost")


@pytest.mark.parametrize("greeting", [b"", b"\x16\x03\x01\x00\xa5\x01"], ids=["nothing", "half a greeting"])
async def test_a_slow_handshake_is_cut_off(greeting: bytes, authority: Authority) -> None:
    async with serving_tls(certificates(authority.issue("memory")).make_server_context()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(greeting)
        async with within(QUICK.preface_s + 2):
            await read_until_closed(reader)
        writer.transport.abort()


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff" * 5000])
async def test_a_client_without_tls_is_refused_without_an_error(noise: bytes, authority: Authority) -> None:
    client = certificates(authority.issue("orchestrator"))
    async with serving_tls(certificates(authority.issue("memory")).make_server_context()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(noise)
        await read_until_closed(reader)
        writer.transport.abort()
        async with calling(port, client.get_client_context()) as call:
            assert await call(b"")


async def test_a_handshake_does_not_outlive_the_server(authority: Authority) -> None:
    server = Server(message_bytes_max=BYTES_MAX)
    port = server.add_port("127.0.0.1:0", certificates(authority.issue("memory")).make_server_context())
    await server.start()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)
        await server.stop(None)
        context = certificates(authority.issue("orchestrator")).get_client_context()
        # The handshake may still complete; the connection ends then.
        with suppress(OSError):
            await writer.start_tls(context, server_hostname="localhost")
            assert await read_until_closed(reader) == b""
        writer.transport.abort()


async def test_connections_are_accepted_again_once_descriptors_are_available(
    authority: Authority, logged: Logged
) -> None:
    client = certificates(authority.issue("orchestrator"))
    loop, (soft, hard) = asyncio.get_running_loop(), resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving_tls(certificates(authority.issue("memory")).make_server_context()) as port:
        with socket.socket() as connection:
            connection.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                await loop.sock_connect(connection, ("127.0.0.1", port))
                while not logged.named("connections not accepted"):
                    await asyncio.sleep(0.01)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            async with calling(port, client.get_client_context()) as call:
                assert await call(b"")
    assert [line["event"] for line in logged.take_errors()] == ["connections not accepted"]
