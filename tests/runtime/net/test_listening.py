"""Server sockets at addresses of both families."""

import asyncio
import socket
import subprocess
import sys

import aiohttp
import pytest

from services.runtime.net.listening import bind_port
from services.runtime.process.metrics import serving_metrics

LOOPBACK = ("127.0.0.1", "::1")


async def list_reachable(port: int) -> list[str]:
    """Return the addresses of this machine that accept connections at the port."""
    reached: list[str] = []
    for host in LOOPBACK:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            continue
        reached.append(host)
        writer.close()
    return reached


@pytest.mark.parametrize(
    ("host", "reached"),
    [("[::]", [*LOOPBACK]), ("[::1]", ["::1"]), ("0.0.0.0", ["127.0.0.1"]), ("127.0.0.1", ["127.0.0.1"])],
)
async def test_an_address_is_reachable_by_its_families(host: str, reached: list[str]) -> None:
    sockets, port = bind_port(f"{host}:0")
    async with asyncio.timeout(30):
        for item in sockets:
            item.listen()
        assert await list_reachable(port) == reached
    for item in sockets:
        item.close()


WITHOUT_IPV6 = """
import ctypes, errno, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
call = {"x86_64": 41, "aarch64": 198}[os.uname().machine]  # socket
steps = [  # socket(AF_INET6, ...) is refused with EAFNOSUPPORT, everything else allowed
    (0x20, 0, 0, 0), (0x15, 0, 3, call), (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_INET6),
    (0x06, 0, 0, 0x50000 | errno.EAFNOSUPPORT), (0x06, 0, 0, 0x7FFF0000),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program) == 0, ctypes.get_errno()
from services.runtime.net.listening import bind_port
sockets, _ = bind_port("[::]:0")
print(*(item.getsockname()[0] for item in sockets))
"""
"""Like a kernel that was started with ipv6.disable=1, it refuses IPv6 sockets."""


def test_without_ipv6_the_wildcard_address_listens_on_ipv4_only() -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_IPV6], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.stdout, result.stderr) == ("0.0.0.0\n", "")


async def test_metrics_are_reachable_by_both_families() -> None:
    async with asyncio.timeout(60), serving_metrics("[::]:0") as address, aiohttp.ClientSession() as session:
        port = address.rpartition(":")[2]
        for url in (f"http://127.0.0.1:{port}/metrics", f"http://[::1]:{port}/metrics"):
            async with session.get(url) as response:
                assert response.status == 200
    assert address == f"[::]:{port}"


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_server, pytest.raises(OSError, match="in use"):
        bind_port(f"[::]:{other_server.getsockname()[1]}")
