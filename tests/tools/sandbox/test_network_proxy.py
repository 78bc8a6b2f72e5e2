"""The network of commands: a proxy to the hosts that the operator allows, nothing else. A test server is outside."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from services.runtime.net.allow_list import parse_allow_list
from services.tools.sandbox.command import CommandOutput, stream_command
from services.tools.sandbox.network_proxy import parse_request
from services.tools.sandbox.supervisor.policy import Policy
from tests.support.tools.tiers import TIERS
from tests.support.web_server import serving_web

works = pytest.mark.parametrize("tier", [tier for tier in TIERS if tier == "bubblewrap"])


@asynccontextmanager
async def server() -> AsyncGenerator[tuple[int, list[str]]]:
    """Yield a web server's port and the paths requested from it."""
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path_qs)
        return web.Response(text=f"hello {request.path_qs}\n")

    async with serving_web(answer) as port:
        yield port, paths


async def run_command(folder: Path, command: str, allow: str) -> str:
    policy = Policy(
        ("bash", "-c", command),
        str(folder),
        home_parent=str(folder.parent),
        namespaces=True,
        network=True,
        timeout_s=10,
    )
    async with asyncio.timeout(150):
        return "".join(
            [
                event.text
                async for event in stream_command(policy, parse_allow_list(allow))
                if isinstance(event, CommandOutput)
            ]
        )


URLLIB = """
import sys, urllib.request
try: print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode(), end='')
except OSError as error: print('refused:', error)
"""

CONNECT = """
import os, socket, sys
proxy = os.environ['https_proxy'].rpartition('//')[2].partition(':')
tunnel = socket.create_connection((proxy[0], int(proxy[2])), 5)
tunnel.sendall(f'CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n'.encode())
print(tunnel.recv(1000).split(b'\\r\\n')[0].decode())
tunnel.sendall(b'GET /tunnel HTTP/1.0\\r\\n\\r\\n')
print(tunnel.makefile('rb').read().decode().rpartition('\\n\\n')[2])
"""


@works
async def test_an_allowed_host_is_reached(folder: Path, tier: str) -> None:
    (folder / "get.py").write_text(URLLIB)
    async with server() as (port, paths):
        text = await run_command(folder, f"python3 get.py 'http://127.0.0.1:{port}/a?b=c'", f"127.0.0.1:{port}")
    assert text == "hello /a?b=c\n"
    assert paths == ["/a?b=c"]


@works
async def test_a_tunnel_is_opened(folder: Path, tier: str) -> None:
    (folder / "tunnel.py").write_text(CONNECT)
    async with server() as (port, paths):
        text = await run_command(folder, f"python3 tunnel.py 127.0.0.1:{port}", "127.0.0.1")
    assert text.startswith("HTTP/1.1 200")
    assert "hello /tunnel" in text
    assert paths == ["/tunnel"]


@works
@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::1]:{port}/"])
async def test_a_host_that_is_not_allowed_gets_403(folder: Path, tier: str, url: str) -> None:
    (folder / "get.py").write_text(URLLIB)
    async with server() as (port, paths):
        text = await run_command(folder, f"python3 get.py '{url.format(port=port)}'", f"127.0.0.2,127.0.0.1:{port + 1}")
    assert "403" in text
    assert paths == []


@works
async def test_curl_goes_over_the_proxy(folder: Path, tier: str) -> None:
    if shutil.which("curl") is None:
        return
    async with server() as (port, _):
        text = await run_command(folder, f"curl -sS --proxytunnel http://127.0.0.1:{port}/curl", f"127.0.0.1:{port}")
    assert text == "hello /curl\n"


DIRECT = """
import socket, sys
for kind, what in (
    ('past the proxy', lambda: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2)),
    ('UDP', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    ('IPv6', lambda: socket.socket(socket.AF_INET6)),
    ('Unix', lambda: socket.socket(socket.AF_UNIX)),
    ('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)),
    ('multipath', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)),
    ('listening', lambda: socket.socket().bind(('127.0.0.1', 0))),
):
    try: what()
    except PermissionError: print(kind, 'refused')
    else: print(kind, 'ALLOWED')
"""


@works
async def test_the_network_is_reachable_only_through_the_proxy(folder: Path, tier: str) -> None:
    (folder / "direct.py").write_text(DIRECT)
    async with server() as (port, paths):
        text = await run_command(folder, f"python3 direct.py {port}", f"127.0.0.1:{port}")
    assert text.count("refused") == 7, text
    assert "ALLOWED" not in text
    assert paths == []


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("CONNECT a.org:443 HTTP/1.1", ("a.org", 443, "")),
        ("CONNECT [::1]:443 HTTP/1.1", ("::1", 443, "")),
        ("GET http://A.org HTTP/1.1", ("a.org", 80, "GET / HTTP/1.1")),
        ("GET http://b@a.org:81/x?y HTTP/1.1", ("a.org", 81, "GET /x?y HTTP/1.1")),
        ("CONNECT a.org HTTP/1.1", None),
        ("CONNECT a.org:0 HTTP/1.1", None),
        ("CONNECT a.org:99999 HTTP/1.1", None),
        ("GET /x HTTP/1.1", None),
        ("GET https://a.org/ HTTP/1.1", None),
        ("GET ftp://a.org/ HTTP/1.1", None),
        ("GET http://a.org/ HTTP/2", None),
        ("GET  http://a.org/ HTTP/1.1", None),
        ("nonsense", None),
        ("GET http://\u00e4.org/ HTTP/1.1", None),
    ],
)
def test_requests_for_a_proxy_are_distinguished_from_others(head: str, found: tuple[str, int, str] | None) -> None:
    target = parse_request(f"{head}\r\nHost: other\r\nProxy-Connection: keep-alive\r\n\r\n".encode())
    if target is None or found is None:
        assert target == found
        return
    host, port, forwarded = target
    assert (host, port, forwarded.decode().partition("\r\n")[0]) == found
    assert b"keep-alive" not in forwarded


def test_a_connection_carries_only_one_request() -> None:
    target = parse_request(b"GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\nConnection: keep-alive\r\n\r\n")
    assert target is not None
    assert target[2] == b"GET / HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\n\r\n"
