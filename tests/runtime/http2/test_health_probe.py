"""grpc-health-probe, which Kubernetes uses: its exit code says whether a service is ready."""

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from tests.support.http2.ends import TEST_TIMEOUT_S, serving
from tests.support.programs import run_to_end

PROBE = Path(__file__).parent / "health_probe"
"""A Go module of its own, which pins the version."""

BUILD_TIMEOUT_S = 1200.0
"""The probe is compiled the first time."""

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

READY, NO_CONNECTION, NO_ANSWER, NOT_READY = 0, 2, 3, 4
"""Its exit codes; it runs as a program, because `go tool` would turn each of them into 1."""

pytestmark = pytest.mark.nightly

needs_go = pytest.mark.skipif(
    shutil.which("go") is None, reason="NOTICE: Go is not installed: grpc-health-probe is not tried"
)


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("probe") / "grpc-health-probe"
    words = ["go", "build", "-o", str(program), "github.com/grpc-ecosystem/grpc-health-probe"]
    subprocess.run(words, cwd=PROBE, check=True, timeout=BUILD_TIMEOUT_S)
    return program


async def exit_code(program: Path, *options: str) -> int | None:
    words = [str(program), "-connect-timeout=5s", "-rpc-timeout=5s", *options]
    return (await run_to_end(*words, timeout_s=TEST_TIMEOUT_S))[0]


@needs_go
async def test_the_probe_reports_the_status_of_each_service(probe: Path) -> None:
    health = health_aio.HealthServicer()
    await health.set("up", SERVING)
    await health.set("down", NOT_SERVING)

    async with serving("ours", lambda server: health_pb2_grpc.add_HealthServicer_to_server(health, server)) as (
        _,
        address,
    ):
        assert await exit_code(probe, f"-addr={address}") == READY
        assert await exit_code(probe, f"-addr={address}", "-service=up") == READY
        assert await exit_code(probe, f"-addr={address}", "-service=down") == NOT_READY
        assert await exit_code(probe, f"-addr={address}", "-service=unknown") == NO_ANSWER


@needs_go
async def test_the_probe_connects_over_a_unix_socket(probe: Path, tmp_path: Path) -> None:
    health = health_aio.HealthServicer()
    await health.set("up", SERVING)
    address = f"unix:{tmp_path}/s"

    def add(server: Any) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(health, server)

    async with serving("ours", add, address=address):
        assert await exit_code(probe, f"-addr=unix:{tmp_path}/s", "-service=up") == READY


@needs_go
async def test_a_server_without_health_gives_no_answer(probe: Path) -> None:
    async with serving("ours") as (_, address):
        assert await exit_code(probe, f"-addr={address}") == NO_ANSWER


@needs_go
async def test_an_absent_server_is_reported_as_no_connection(probe: Path) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"-addr=127.0.0.1:{reserved.getsockname()[1]}"
        assert await exit_code(probe, address, "-connect-timeout=500ms") == NO_CONNECTION
