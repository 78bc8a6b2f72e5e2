"""The command line with a facade that speaks TLS, and with one that demands a client certificate, as a proxy may."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.authority import Authority, Files
from tests.support.command_line import run

READY = b'{"data": {"memory": true}}'
PRINTED = b"service  state\nmemory   ready\n"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Authority(tmp_path).issue("facade")


@asynccontextmanager
async def facade(files: Files, *, asks: bool = False) -> AsyncGenerator[str]:
    """A server that answers `headrace health` over TLS; yields its URL."""

    async def ready(_: web.Request) -> web.Response:
        return web.Response(body=READY, content_type="application/json")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.ca)
    app = web.Application()
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        async with asyncio.timeout(300):
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_certificate_signed_by_the_given_ca_is_trusted(files: Files) -> None:
    async with facade(files) as url:
        assert await run("health", "--tls-ca", files.ca, url=url) == (0, PRINTED, b"")
        assert await run("health", url=url, HEADRACE_TLS_CA=files.ca) == (0, PRINTED, b"")
        code, _, complaint = await run("health", url=url)
    assert code == 3
    assert b"certificate verify failed" in complaint


async def test_the_client_certificate_is_sent_when_demanded(files: Files) -> None:
    tls_options = ("--tls-ca", files.ca, "--tls-cert", files.cert, "--tls-key", files.key)
    async with facade(files, asks=True) as url:
        assert await run("health", *tls_options, url=url) == (0, PRINTED, b"")
        assert (await run("health", url=url, HEADRACE_TLS_CA=files.ca))[0] == 3


async def test_unusable_certificate_files_are_wrong_usage(files: Files) -> None:
    code, _, complaint = await run("agents", "list", "--tls-ca", "nowhere.crt", url="https://127.0.0.1:1")
    assert code == 2
    assert b"cannot use the certificates nowhere.crt" in complaint
    code, _, complaint = await run("agents", "list", "--tls-cert", files.cert, url="https://127.0.0.1:1")
    assert code == 2
    assert b"both or neither" in complaint
