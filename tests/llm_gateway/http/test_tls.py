"""TLS to a provider, with an authority made for the test: who is trusted, who is not, and how connections close."""

import asyncio
import ssl
from pathlib import Path

import pytest

from headrace.errors import ProviderUnavailable
from services.llm_gateway.http.client import opening_stream
from services.llm_gateway.http.pool import Pool
from services.llm_gateway.http.request import Origin
from tests.support.llm_gateway.scripted import END, ORDINARY, Exchange, Scripted, ask, chunk, read, serving_script
from tests.support.timing import within


@pytest.fixture
def serving(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def trusting(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))


async def hello(exchange: Exchange) -> None:
    await exchange.say(ORDINARY + chunk(b"hello") + END, step=3)


async def test_a_trusted_providers_connection_is_reused(serving: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    async with Pool(trusting) as pool, serving_script(hello, tls=serving) as server:
        for _ in range(3):
            assert await read(pool, ask(server)) == b"hello"
        assert server.connections == 1


async def test_an_untrusted_provider_is_refused_before_the_request_is_sent(serving: ssl.SSLContext) -> None:
    async with Pool() as pool, serving_script(hello, tls=serving) as server:
        with pytest.raises(ProviderUnavailable, match="cannot be reached") as caught:
            await read(pool, ask(server))
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert server.exchanges == []


async def test_a_provider_with_another_host_name_is_refused(serving: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    async with Pool(trusting) as pool, serving_script(hello, tls=serving) as server:
        named = Scripted(Origin("127.0.0.1", server.origin.port, is_tls=True))
        with pytest.raises(ProviderUnavailable, match="cannot be reached"):
            await read(pool, ask(named))
        assert server.exchanges == []


async def test_closing_the_stream_does_not_wait_for_a_tls_close_notify(
    serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.say(ORDINARY)
        while True:
            await exchange.say(chunk(b"x" * 10_000))

    async with Pool(trusting) as pool, serving_script(endless, tls=serving) as server:
        async with opening_stream(pool, ask(server)) as stream:
            assert await stream.push_body(lambda _: False)
            await asyncio.sleep(0.1)  # nobody reads: buffers fill up to the provider
        async with within(0.5):
            await server.closed.wait()


async def test_a_missing_tls_handshake_counts_as_a_connect_timeout(trusting: ssl.SSLContext) -> None:
    async with Pool(trusting) as pool, serving_script(hello) as server:
        mute = Scripted(Origin("localhost", server.origin.port, is_tls=True))
        with pytest.raises(ProviderUnavailable, match="did not accept a connection within 200 ms"):
            await read(pool, ask(mute, connectMs=200))
