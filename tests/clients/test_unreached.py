"""@headrace/client without a server: each error names the address and the cause."""

import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import serving_grpc
from tests.support.facade.scripted import Script, ScriptedMemory, answering, make_peer_services
from tests.support.programs import run_to_end
from tests.support.web_server import serving_web

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="NOTICE: Node is not installed: this is NOT tried")

TRANSPORT = Path(__file__).parents[2] / "services/facade/console/static/client/transport.js"

PROGRAM = """
const { Transport } = await import(process.argv[1]);
try { await new Transport({ url: process.argv[2] }).request("/api/agents"); }
catch (error) { console.log(JSON.stringify(error.message)); }
"""


async def request_and_fail(url: str) -> str:
    """Return the error message of a program in Node."""
    command = ("node", "--input-type=module", "--eval", PROGRAM, str(TRANSPORT), url)
    return json.loads((await run_to_end(*command))[1])


@asynccontextmanager
async def serving_page(status: int) -> AsyncGenerator[str]:
    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(text="<html>", status=status)

    async with serving_web(answer) as port:
        yield f"http://127.0.0.1:{port}"


async def test_the_error_of_a_grpc_port_says_so() -> None:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with serving_grpc(settings, make_peer_services(Script(query=answering("a")), ScriptedMemory())) as running:
        url = f"http://{running.addresses[0]}"
        assert (
            await request_and_fail(url) == f"{url} cannot be reached: it does not speak HTTP/1.1; is that gRPC's port?"
        )


async def test_the_error_of_another_server_says_so() -> None:
    async with serving_page(200) as url:
        assert await request_and_fail(url) == f"What answers at {url} is not Headrace."
        secure = url.replace("http", "https")
        assert (await request_and_fail(secure)).startswith(f"{secure} cannot be reached: TLS failed (")
    async with serving_page(404) as url:
        assert await request_and_fail(url) == f"{url} answered 404, not as Headrace does"


async def test_the_error_of_a_closed_port_says_so() -> None:
    async with serving_page(200) as url:
        pass
    assert await request_and_fail(url) == f"{url} cannot be reached: nothing listens there; is the server running?"


@pytest.mark.parametrize("url", ["127.0.0.1:8080", ""])
async def test_the_error_of_an_invalid_address_says_so(url: str) -> None:
    expected = f"{url or 'The server'} cannot be reached: it is no address such as http://127.0.0.1:8080"
    assert await request_and_fail(url) == expected
