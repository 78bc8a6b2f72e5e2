"""Company networks between the gateway and a provider: proxies, private CAs, client certificates."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.llm_gateway.http.proxy import serving_proxy
from tests.support.llm_gateway.answering import HELLO, answering
from tests.support.llm_gateway.gateway import Asking
from tests.support.llm_gateway.scripted import END, ORDINARY, Exchange, Scripted, chunk, serving_script

DELTA = b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
BASIC = b"Basic am9lOnAvdw=="
"""joe:p/w"""


@pytest.fixture
def demanding(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """Return a provider's TLS context that requires a client certificate of the test's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def tls_files(certificate: tuple[Path, Path]) -> dict[str, Any]:
    return {"caFile": str(certificate[0]), "certFile": str(certificate[0]), "keyFile": str(certificate[1])}


def address(server: Scripted) -> str:
    return f"https://localhost:{server.origin.port}/v1"


async def hello(exchange: Exchange) -> None:
    await exchange.say(ORDINARY + chunk(DELTA) + END)


async def test_a_provider_is_reached_through_a_proxy_with_mutual_tls(
    asking: Asking, certificate: tuple[Path, Path], demanding: ssl.SSLContext
) -> None:
    async with serving_script(hello, tls=demanding) as server, serving_proxy(authorization=BASIC) as proxy:
        fields = {"baseUrl": address(server), "proxy": f"http://joe:p%2Fw@127.0.0.1:{proxy.port}"}
        async with asking(**fields, **tls_files(certificate)) as gateway:
            for _ in range(2):
                result = await gateway.chat()
                assert (result.error, result.content) == (None, ["hello"])
    assert [head.split(b"\r\n")[0] for head in proxy.heads] == [
        f"CONNECT localhost:{server.origin.port} HTTP/1.1".encode()
    ], "the second call uses the tunnel again"
    assert BASIC not in b"".join(exchange.head for exchange in server.exchanges)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "it answered 407 Proxy Authentication Required"),
        (b"HTTP/1.1 403 Forbidden by policy\r\n\r\n", "it answered 403 Forbidden by policy"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "it does not speak HTTP"),
        (b"x" * 70_000, "it does not speak HTTP"),
    ],
)
async def test_a_proxy_that_refuses_a_tunnel_is_named_with_its_response(
    asking: Asking, certificate: tuple[Path, Path], answer: bytes, problem: str
) -> None:
    async with serving_proxy(answer, authorization=BASIC) as proxy:
        fields = {"baseUrl": "https://localhost:1/v1", "proxy": f"http://joe:wrong@127.0.0.1:{proxy.port}"}
        async with asking(**fields, **tls_files(certificate)) as gateway:
            error = (await gateway.chat()).failure
    assert error.reason == "PROVIDER_UNAVAILABLE"
    assert f"through the proxy 127.0.0.1:{proxy.port}: {problem}" in error.message
    assert "wrong" not in error.message


async def test_an_unreachable_proxy_is_named(asking: Asking) -> None:
    async with asking(baseUrl="http://example.invalid/v1", proxy="http://127.0.0.1:1") as gateway:
        error = (await gateway.chat()).failure
    assert "through the proxy 127.0.0.1:1: " in error.message


async def test_a_plain_http_request_is_forwarded_by_the_proxy(asking: Asking) -> None:
    async with answering(HELLO) as provider, serving_proxy(authorization=BASIC) as proxy:
        way = f"http://joe:p%2Fw@127.0.0.1:{proxy.port}"
        async with asking(baseUrl=provider.base_url, proxy=way) as gateway:
            assert (await gateway.chat()).content == ["hello"]
    assert proxy.heads[0].startswith(f"POST {provider.base_url}/chat/completions HTTP/1.1\r\n".encode())


async def test_the_environment_names_the_proxy_for_all_but_the_excluded(asking: Asking) -> None:
    forbidden = b"HTTP/1.1 403 Forbidden\r\n\r\n"
    async with serving_proxy(forbidden) as proxy, asking(baseUrl="https://api.company.example/v1") as gateway:
        gateway.env["HTTPS_PROXY"] = f"http://127.0.0.1:{proxy.port}"
        through = (await gateway.chat()).error
        gateway.env["NO_PROXY"] = "10.0.0.0/8, .company.example"
        directly = (await gateway.chat()).error
    assert through is not None
    assert directly is not None
    assert "through the proxy" in through.message
    assert "through the proxy" not in directly.message


async def test_a_provider_that_requires_a_client_certificate_refuses_without_one(
    asking: Asking, certificate: tuple[Path, Path], demanding: ssl.SSLContext
) -> None:
    trust = {"caFile": str(certificate[0])}
    async with serving_script(hello, tls=demanding) as server, asking(baseUrl=address(server), **trust) as gateway:
        error = (await gateway.chat()).failure
    assert error.reason == "PROVIDER_UNAVAILABLE"


async def test_changed_certificate_files_are_reread_and_a_bad_one_is_named(
    asking: Asking, certificate: tuple[Path, Path], demanding: ssl.SSLContext, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text("no certificate")
    async with serving_script(hello, tls=demanding) as server:
        files = tls_files(certificate) | {"caFile": str(ca_file)}
        async with asking(baseUrl=address(server), **files) as gateway:
            error = (await gateway.chat()).error
            ca_file.write_bytes(certificate[0].read_bytes())
            assert (await gateway.chat()).content == ["hello"]
    assert error is not None
    assert f"{ca_file} holds no certificates in PEM" in error.message
