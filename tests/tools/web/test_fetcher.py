"""Fetches from a real server on this machine, which the allow-list permits."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from services.runtime.net.allow_list import parse_allow_list
from services.runtime.net.pinned_connection import pinned_session
from services.tools.errors import ToolFailed
from services.tools.web.fetcher import REDIRECTS_MAX, SIZE_BYTES_MAX, Fetcher, fetch_errors
from tests.support.web_server import Answer, serving_web


async def resolve(name: str) -> list[str]:
    del name
    return ["127.0.0.1"]


@asynccontextmanager
async def site(answer: Answer) -> AsyncGenerator[tuple[Fetcher, str]]:
    """Yield a fetcher that may reach the site, and the site's URL."""
    async with asyncio.timeout(200), serving_web(answer) as port:
        yield Fetcher(parse_allow_list(f"site.test:{port}"), resolve, fetch_s=2), f"http://site.test:{port}"


def answering(body: bytes, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


async def test_a_response_has_its_type_charset_and_final_url() -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/old":
            return web.Response(status=301, headers={"Location": "/new?sig=a%2Fb%2B"})
        assert request.headers["Host"].startswith("site.test:")
        assert "Cookie" not in request.headers
        return web.Response(text=f"at {request.raw_path}", headers={"Set-Cookie": "a=b"})

    async with site(answer) as (fetcher, url):
        fetched = await fetcher.fetch(f"{url}/old")
        again = await fetcher.fetch(f"{url}/new?sig=a%2Fb%2B")
    assert (fetched.url, fetched.status, fetched.body) == (f"{url}/new?sig=a%2Fb%2B", 200, b"at /new?sig=a%2Fb%2B")
    assert (fetched.content_type, fetched.charset) == ("text/plain", "utf-8")
    assert again.body == fetched.body


async def test_a_chain_of_redirects_keeps_its_cookies_and_no_other_fetch_or_host_gets_them() -> None:
    given: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        given.append((f"{request.url.host}{request.path}", request.headers.get("Cookie", "")))
        if request.path == "/article" and "session=1" not in request.headers.get("Cookie", ""):
            return web.Response(status=303, headers={"Location": f"http://idp.site.test:{request.url.port}/authorize"})
        if request.path == "/article":
            return web.Response(text="the article")
        back = f"http://www.site.test:{request.url.port}/" + ("article" if request.path == "/transit" else "transit")
        cookie = "session=1; Domain=site.test" if request.path == "/transit" else "asked=1"
        return web.Response(status=302, headers={"Location": back, "Set-Cookie": cookie})

    async with asyncio.timeout(200), serving_web(answer) as port:
        hosts = ",".join(f"{name}.site.test:{port}" for name in ("www", "idp"))
        fetcher = Fetcher(parse_allow_list(hosts), resolve, fetch_s=2)
        fetched = await fetcher.fetch(f"http://www.site.test:{port}/article")
        before = len(given)
        await fetcher.fetch(f"http://www.site.test:{port}/article")
    assert fetched.body == b"the article"
    assert given[:before] == [
        ("www.site.test/article", ""),
        ("idp.site.test/authorize", ""),
        ("www.site.test/transit", ""),
        ("www.site.test/article", "session=1"),
    ]
    assert given[before][1] == ""


def compress_in_two(data: bytes) -> bytes:
    return gzip.compress(data[:70_000]) + gzip.compress(data[70_000:])


def compress_and_pad(data: bytes) -> bytes:
    return gzip.compress(data) + bytes(100_000)


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("gzip", compress_in_two),
        ("gzip", compress_and_pad),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data, wbits=-15)),  # pyright: ignore[reportUnknownLambdaType]
        ("identity", bytes),
        ("utf-8", bytes),  # a charset in the wrong place, as buckets have it
        ("gzip, none", gzip.compress),
    ],
)
async def test_a_compressed_response_is_decompressed(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    body = b"water mill " * 20_000
    async with site(answering(pack(body), Content_Encoding=encoding)) as (fetcher, url):
        assert (await fetcher.fetch(url)).body == body


@pytest.mark.parametrize(
    ("body", "encoding", "problem"),
    [
        (gzip.compress(bytes(200_000_000)), "gzip", "larger than 5 MiB"),
        (zlib.compress(bytes(50_000_000)), "deflate", "larger than 5 MiB"),
        (bytes(SIZE_BYTES_MAX + 1), "identity", "larger than 5 MiB"),
        (b"x", "br", "not asked for"),
        (b"x", "zstd", "not asked for"),
        (gzip.compress(gzip.compress(b"x")), "gzip, gzip", "not asked for"),
        (b"no gzip at all", "gzip", "damaged"),
        (gzip.compress(b"water mill" * 999)[:-9], "gzip", "ends too early"),
    ],
    ids=["gzip bomb", "deflate bomb", "too large", "brotli", "zstd", "packed twice", "not packed", "cut off"],
)
async def test_a_decompression_bomb_or_damaged_data_is_refused(body: bytes, encoding: str, problem: str) -> None:
    async with site(answering(body, Content_Encoding=encoding)) as (fetcher, url):
        with pytest.raises(ToolFailed, match=problem):
            await fetcher.fetch(url)


async def test_an_endless_response_is_closed_at_the_size_limit() -> None:
    closed = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(1 << 20))
        except ConnectionError:
            closed.set()
        return response

    async with site(endless) as (fetcher, url):
        with pytest.raises(ToolFailed, match="larger than 5 MiB"):
            await fetcher.fetch(url)
        await closed.wait()


async def test_a_slow_response_ends_at_the_total_timeout() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.02)

    async with site(slow) as (fetcher, url):
        with pytest.raises(ToolFailed, match=r"no answer within 0\.2 s"):
            await Fetcher(fetcher.allow, resolve, fetch_s=0.2).fetch(url)


@pytest.mark.parametrize("location", ["/café".encode(), "/café".encode("latin-1"), b"/caf%C3%A9"])
async def test_a_redirect_to_an_unencoded_url_is_followed(location: bytes) -> None:
    paths: list[bytes] = []

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        status = b"302 Found\r\nLocation: " + location if paths == [b"/"] else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with asyncio.timeout(100), await asyncio.start_server(met, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fetched = await Fetcher(parse_allow_list("127.0.0.1"), resolve, fetch_s=2).fetch(f"http://127.0.0.1:{port}/")
    assert paths == [b"/", b"/caf%C3%A9"]
    assert fetched.status == 200


@pytest.mark.parametrize("redirects", [REDIRECTS_MAX, REDIRECTS_MAX + 1])
async def test_some_redirects_are_followed(redirects: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        left = int(request.path[1:])
        return web.Response(status=302, headers={"Location": f"/{left - 1}"}) if left else web.Response(text="here")

    async with site(answer) as (fetcher, url):
        if redirects == REDIRECTS_MAX:
            assert (await fetcher.fetch(f"{url}/{redirects}")).body == b"here"
        else:
            with pytest.raises(ToolFailed, match=f"more than {REDIRECTS_MAX} redirects"):
                await fetcher.fetch(f"{url}/{redirects}")


async def test_a_proxy_in_the_environment_is_not_used() -> None:
    session = pinned_session(())
    try:
        assert not session.trust_env
        with pytest.raises(aiohttp.ClientError):  # no address was checked, so none is connected to
            await session.get("http://127.0.0.1:1/")
    finally:
        await session.close()


async def test_tls_sends_the_host_name_to_the_checked_address() -> None:
    hello = asyncio.get_running_loop().create_future()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.set_result(await reader.read(4096))
        writer.close()

    async with asyncio.timeout(100), await asyncio.start_server(met, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ToolFailed):
            await Fetcher(parse_allow_list("site.test"), resolve, fetch_s=2).fetch(f"https://site.test:{port}/")
    assert b"site.test" in hello.result()


async def test_a_disconnecting_or_unreachable_server_is_reported() -> None:
    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        writer.close()

    async with asyncio.timeout(100):
        async with await asyncio.start_server(met, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            fetcher = Fetcher(parse_allow_list("127.0.0.1"), resolve, fetch_s=2)
            with pytest.raises(ToolFailed, match="not valid HTTP"):
                await fetcher.fetch(f"http://127.0.0.1:{port}/")
        with pytest.raises(ToolFailed, match="cannot be reached"):
            await fetcher.fetch(f"http://127.0.0.1:{port}/")


def list_subclasses(cls: type[Exception]) -> list[type[Exception]]:
    return [cls, *(below for child in cls.__subclasses__() for below in list_subclasses(child))]


@pytest.mark.parametrize("kind", [*list_subclasses(aiohttp.ClientError), OSError, TimeoutError, ConnectionResetError])
def test_every_error_of_the_library_is_translated(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    with pytest.raises(ToolFailed), fetch_errors(1):
        raise error
