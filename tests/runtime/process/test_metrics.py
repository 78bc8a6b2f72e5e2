"""Metrics on a port of their own, over HTTP."""

import aiohttp
import pytest

from services.runtime.process.config import ServerSettings
from services.runtime.process.metrics import serving_metrics
from services.runtime.rpc.server import serving_grpc


async def test_a_server_serves_its_metrics_on_another_port() -> None:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0, metrics_listen="127.0.0.1:0")
    async with serving_grpc(settings, []) as running, aiohttp.ClientSession() as session:
        assert running.metrics_address not in running.addresses
        async with session.get(f"http://{running.metrics_address}/metrics") as response:
            text = await response.text()
    assert response.content_type == "text/plain"
    assert "process_resident_memory_bytes" in text


async def test_by_default_no_metrics_port_is_open() -> None:
    async with serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=0), []) as running:
        assert running.metrics_address == ""


async def test_a_port_in_use_is_an_error_at_the_start() -> None:
    async with serving_metrics("127.0.0.1:0") as address:
        with pytest.raises(OSError, match=r"Address already in use: '127\.0\.0\.1:\d+'"):
            async with serving_metrics(address):
                pass


@pytest.mark.parametrize("listen", ["9090", ":9090", "127.0.0.1", "127.0.0.1:99999", "unix:/tmp/metrics"])
def test_an_address_must_have_host_and_port(listen: str) -> None:
    with pytest.raises(ValueError, match="metrics address"):
        ServerSettings(listen="127.0.0.1:0", metrics_listen=listen)
