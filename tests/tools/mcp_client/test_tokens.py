"""Answers of authorization servers, as those in use write them, and as one that means harm could."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
from aiohttp import web

from services.runtime.net.allow_list import parse_allow_list
from services.tools.mcp_client.oauth.token_store import Client, Issuer, Pending, Token
from services.tools.mcp_client.oauth.tokens import LASTS_S_MAX, AuthorizationFailed, exchange_code, renew, send
from tests.support.web_server import serving_web

HERE = parse_allow_list("127.0.0.1")

REDIRECT = "http://127.0.0.1:8080/console/authorized.html"


@asynccontextmanager
async def answering(body: bytes) -> AsyncGenerator[Issuer]:
    """An authorization server that answers this to whatever it is asked."""

    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(body=body, content_type="application/json")

    async with serving_web(answer) as port:
        origin = f"http://127.0.0.1:{port}"
        yield Issuer(origin, f"{origin}/token", "https://mcp.example", Client("headrace"))


async def exchange(issuer: Issuer) -> Token:
    made_at = time.time()
    pending = Pending("s", "acme", "ann", issuer, "verifier", REDIRECT, says_issuer=False, made_at=made_at)
    return await exchange_code(pending, "code", HERE)


@pytest.mark.parametrize(
    ("answer", "lasts_s"),
    [
        (b'{"access_token": "a", "token_type": "bearer", "refresh_token": null, "expires_in": null}', 0),
        (b'{"access_token": "a", "expires_in": "3600"}', 3600),
        (b'{"access_token": "a", "expires_in": 3600.5}', 3600),
        (b'{"access_token": "a", "expires_in": 1e308}', LASTS_S_MAX),
        (b'{"access_token": "a", "expires_in": -5}', 0),
    ],
)
async def test_a_token_is_taken_as_servers_in_use_write_it(answer: bytes, lasts_s: float) -> None:
    async with answering(answer) as issuer:
        token = await exchange(issuer)
        renewed = await renew(token, HERE)
    for one in (token, renewed):
        assert (one.access, one.refresh) == ("a", "")
        assert (one.expires_at - time.time() if one.expires_at else 0) == pytest.approx(lasts_s, abs=100)


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"access_token": 1}', b'{"access_token": "a", "x": ' + b"[" * 100_000]
)
async def test_what_has_no_token_is_told(answer: bytes) -> None:
    async with answering(answer) as issuer:
        with pytest.raises(AuthorizationFailed, match="has no token"):
            await exchange(issuer)


async def test_an_answer_that_never_comes_to_its_end_is_left() -> None:
    left = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.05)
        left.set()

    async with asyncio.timeout(30), await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(AuthorizationFailed, match="does not answer"):
            await send(httpx2.Request("GET", url), HERE, timeout_s=0.5)
        await left.wait()
