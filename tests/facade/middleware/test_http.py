"""HTTP itself over real sockets: connections, methods, origins, metrics; the peers are scripted."""

import asyncio
import codecs
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from structlog.testing import capture_logs

from services.facade import service
from services.facade.config import Config
from services.runtime.process.config import ProcessSettings, ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import serving_grpc as serving_rpcs
from tests.support.facade.fronts import PEERS
from tests.support.facade.scripted import Script, ScriptedMemory, answering, make_peer_services, suite
from tests.support.facade.slow_readers import make_post
from tests.support.programs import run_to_end
from tests.support.raw_http import say
from tests.support.timing import within

PAGE = "https://app.example"
NO_DRAIN = ProcessSettings(drain_s=0)
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@asynccontextmanager
async def configured(
    folder: Path, script: Script | None = None, process: ProcessSettings = NO_DRAIN, **settings: Any
) -> AsyncGenerator[str]:
    """The URL of a facade with these settings."""
    address = f"unix:{folder}/peer.sock"
    peer = ServerSettings(listen=address, drain_s=0)
    script = script or Script(query=answering("x"))
    async with (
        asyncio.timeout(200),
        serving_rpcs(peer, make_peer_services(script, ScriptedMemory())),
        open_channel(address) as channel,
        service.serve(Config(port=0, process=process, **settings), dict.fromkeys(PEERS, channel)) as bound,
    ):
        yield f"http://{bound}"


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    first = make_post("/api/query", b'{"message":"a","stream":false}')
    async with suite(tmp_path, Script(query=answering("x"))) as facade:
        answer = await say(facade.url, first + HEAD + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.index(b'"content":"x"') < answer.index(b'"status":"live"')


async def test_a_stream_to_a_client_of_http_1_0_ends_with_its_connection(tmp_path: Path) -> None:
    """Such a client has no other way to see the end of a stream, even if it asks to keep the connection alive."""
    request = make_post("/api/query", b'{"message":"a"}')
    request = request.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\nConnection: keep-alive\r\n")
    async with suite(tmp_path, Script(query=answering("x"))) as facade, within(5):
        assert (await say(facade.url, request)).endswith(b"data: [DONE]\n\n")


async def test_a_connection_is_kept_after_a_refusal(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        answer = await say(
            facade.url, HEAD.replace(b"healthz", b"nothing") + b"\r\n" + HEAD + b"Connection: close\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"HTTP/1.1 200 OK" in answer


async def test_head_returns_only_headers_and_other_methods_are_405_with_allow(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        async with facade.http.head("/healthz") as response:
            assert (response.status, await response.read()) == (200, b"")
        async with facade.http.put("/api/chat") as response:
            assert (response.status, response.headers["Allow"]) == (405, "DELETE,GET,POST")
            assert (await response.json())["error"]["code"] == "UNSUPPORTED"


@pytest.mark.parametrize("sent", [b"", HEAD[:9], HEAD], ids=["nothing", "half a line", "half a head"])
async def test_a_client_that_never_completes_its_headers_is_disconnected(tmp_path: Path, sent: bytes) -> None:
    async with configured(tmp_path, idle_s=0.2) as url:
        reader, writer = await asyncio.open_connection(*_host_and_port(url))
        writer.write(sent)
        async with asyncio.timeout(50):
            with suppress(ConnectionError):  # what is written after the hang-up may come back as one
                for _ in range(12):  # a byte now and then does not help
                    writer.write(b"X")
                    await writer.drain()
                    await asyncio.sleep(0.05)
                assert await reader.read() == b""
        writer.close()


async def test_a_request_longer_than_the_idle_timeout_is_answered(tmp_path: Path) -> None:
    script = Script(query=[0.5, *answering("x")])
    async with (
        configured(tmp_path, script, idle_s=0.1) as url,
        aiohttp.ClientSession(url) as http,
        http.post("/api/query", json={"message": "a", "stream": False}) as response,
    ):
        assert response.status == 200


async def test_malformed_http_is_refused_in_the_envelope(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        answer = await say(facade.url, b"GET /healthz HTTP/1.1\r\nBroken\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400"
    assert orjson.loads(body)["error"]["code"] == "INVALID_REQUEST"


async def test_a_browser_may_send_the_cookies_of_other_programs_too(tmp_path: Path) -> None:
    cookies = "; ".join(f"session-{n}={'x' * 1000}" for n in range(15))
    async with configured(tmp_path) as url, aiohttp.ClientSession(url) as http:
        for path, length, status in (("/", len(cookies), 200), ("/api/agents", 16380, 200), ("/", 17000, 400)):
            async with http.get(path, headers={"Cookie": cookies.ljust(length, "x")}) as response:
                assert response.status == status


@pytest.mark.parametrize(
    "page",
    [
        PAGE,
        "https://app.example:8443",
        "http://[::1]:3000",
        "app://obsidian.md",
        "tauri://localhost",
        "chrome-extension://mdkmkgmeleogeakokmdmcmiphcpinamb",
        "moz-extension://1f0a-2b",
        "vscode-webview://0abc",
    ],
)
async def test_pages_of_an_allowed_origin_may_call_the_api(tmp_path: Path, page: str) -> None:
    asks = {
        "Origin": page,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type, x-stainless-os, tenant_id",
    }
    async with (
        configured(tmp_path, cors_origins=f"{page}, http://localhost:3000") as url,
        aiohttp.ClientSession(url, headers={"Origin": page}) as http,
    ):
        async with http.options("/api/query", headers=asks) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Origin"] == page
            assert response.headers["Access-Control-Allow-Headers"] == "content-type, x-stainless-os, tenant_id"
            assert "POST" in response.headers["Access-Control-Allow-Methods"]
        for path, status in (("/healthz", 200), ("/nothing", 404), ("/v1/nothing", 404)):
            async with http.get(path) as response:
                assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (status, page)
                exposed = response.headers["Access-Control-Expose-Headers"].split(", ")
                assert {"X-Request-Id", "Mcp-Session-Id", "X-Should-Retry"} <= {*exposed}
                assert response.headers["Vary"] == "Origin"
        async with http.post("/api/query", json={"message": "a"}) as response:
            assert response.headers["Access-Control-Allow-Origin"] == page
            assert await response.read()


@pytest.mark.parametrize("origins", ["", "https://other.example"])
@pytest.mark.parametrize("origin", [PAGE, "null", "https://other.example.evil.example"])
async def test_pages_of_other_origins_get_no_cors_headers(tmp_path: Path, origins: str, origin: str) -> None:
    async with configured(tmp_path, cors_origins=origins) as url, aiohttp.ClientSession(url) as http:
        asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        async with http.options("/api/query", headers=asks) as response:
            assert response.status == 405
            assert "Access-Control-Allow-Origin" not in response.headers
        async with http.get("/healthz", headers={"Origin": origin}) as response:
            assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize(
    ("origins", "headers", "status"),
    [
        ("", {"Sec-Fetch-Site": "cross-site", "Origin": PAGE}, 403),
        ("", {"Sec-Fetch-Site": "same-site"}, 403),
        (PAGE, {"Sec-Fetch-Site": "cross-site", "Origin": PAGE}, 200),
        ("", {"Sec-Fetch-Site": "same-origin", "Origin": PAGE}, 200),
        ("", {}, 200),
    ],
)
async def test_a_page_of_another_origin_starts_no_run(
    tmp_path: Path, origins: str, headers: dict[str, str], status: int
) -> None:
    async with configured(tmp_path, cors_origins=origins) as url, aiohttp.ClientSession(url) as http:
        async with http.post(
            "/api/query", data=b'{"message": "a"}', headers=headers | {"Content-Type": "application/json"}
        ) as response:
            assert response.status == status
        async with http.get("/healthz", headers=headers) as response:
            assert response.status == status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=UTF-8", 200),
        ("application/cloudevents+json; charset=utf-8", 200),
        ("Application/vnd.example.v1+JSON", 200),
        ("text/plain", 400),
        ("text/plain+json", 400),
        ("application/x-www-form-urlencoded", 400),
        ("", 400),
    ],
)
async def test_a_body_must_have_a_json_content_type(tmp_path: Path, kind: str, status: int) -> None:
    """CloudEvents' JSON type is accepted too; types that any web page may send are refused."""
    async with configured(tmp_path) as url, aiohttp.ClientSession(url) as http:
        data = b'{"message": "a"}'
        async with http.post("/api/query", data=data, headers={"Content-Type": kind}) as response:
            assert response.status == status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/query", {"message": "a"}),
        ("/v1/chat/completions", {"model": "helper", "messages": [{"role": "user", "content": "a"}]}),
        ("/agui/helper", {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "a"}]}),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
        ("/a2a/helper", {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}),
    ],
)
async def test_a_byte_order_mark_before_a_body_is_ignored(tmp_path: Path, path: str, body: Any) -> None:
    """.NET programs, PowerShell and some editors write one."""
    async with suite(tmp_path, Script(query=answering("x"), publish=["ag-ui", "mcp", "a2a"])) as facade:
        data = codecs.BOM_UTF8 + orjson.dumps(body)
        async with facade.http.post(path, data=data, headers={"Content-Type": "application/json"}) as response:
            assert response.status == 200
            assert b'"error"' not in await response.read()


@pytest.mark.parametrize(
    "origins",
    [
        "*",
        "app.example",
        "https://app.example/",
        "HTTPS://app.example",
        "null",
        "https://app.example:443",
        "http://[::1]:80",
        "https://app.example,http://app.example:80",
    ],
)
def test_an_invalid_origin_in_the_settings_is_refused_at_startup(origins: str) -> None:
    with pytest.raises(ValueError, match="HEADRACE_FACADE_CORS_ORIGINS"):
        Config(cors_origins=origins)


async def test_metrics_are_served_on_a_separate_port(tmp_path: Path) -> None:
    process = ProcessSettings(drain_s=0, metrics_listen="127.0.0.1:0")
    with capture_logs() as logs:
        async with configured(tmp_path, process=process) as url, aiohttp.ClientSession() as http:
            (metrics,) = [line["metrics"] for line in logs if "metrics" in line]
            async with http.get(f"http://{metrics}/metrics") as response:
                assert "headrace_facade_request_duration_seconds" in await response.text()
            async with http.get(f"{url}/metrics") as response:
                assert response.status == 404


async def test_metrics_include_only_the_facades_own() -> None:
    program = "import services.facade.__main__, prometheus_client as p; print(p.generate_latest().decode())"
    _, output, _ = await run_to_end(sys.executable, "-c", program)
    assert b"headrace_facade_request_duration_seconds" in output
    assert b"headrace_rpc" not in output


async def test_metrics_include_the_event_loop_lag(tmp_path: Path) -> None:
    async def looks() -> float:
        async with facade.http.get(facade.url.metrics) as page:
            line = next(line for line in (await page.text()).splitlines() if "event_loop_lag_seconds_count" in line)
            return float(line.partition(" ")[2])

    async with suite(tmp_path) as facade:
        before = await looks()
        async with within(2):
            while await looks() == before:
                await asyncio.sleep(0.02)


def _host_and_port(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


@pytest.mark.parametrize(
    ("host", "hosts", "status"),
    [
        ("localhost", "", 200),
        ("LOCALHOST.:8080", "", 200),
        ("app.localhost", "", 200),
        ("127.0.0.1:1", "", 200),
        ("[::1]:8080", "", 200),
        ("10.1.2.3", "", 200),
        ("attacker.example", "", 403),
        ("attacker.example:8080", "facade", 403),
        ("localhost.attacker.example", "", 403),
        ("127.0.0.1.attacker.example", "", 403),
        ("[::1", "", 403),
        ("", "", 403),
        ("facade:8080", "facade, headrace.internal", 200),
        ("attacker.example", "*", 200),
    ],
)
async def test_without_authentication_only_allowed_host_names_are_served(
    tmp_path: Path, host: str, hosts: str, status: int
) -> None:
    async with configured(tmp_path, hosts=hosts) as url, aiohttp.ClientSession(url) as http:
        for path in ("/api/agents", "/", "/console/main.js", "/healthz"):
            async with http.get(path, headers={"Host": host}) as response:
                assert response.status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": PAGE}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": PAGE, "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({}, 200),
    ],
    ids=str,
)
async def test_pages_of_other_origins_read_nothing(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with (
        configured(tmp_path) as url,
        aiohttp.ClientSession(url) as http,
        http.get("/api/agents", headers=headers | {"Host": "localhost"}) as response,
    ):
        assert response.status == status
