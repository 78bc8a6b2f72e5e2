"""The suite's certificates: from the settings to a call, and renewed while the processes run."""

import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import REGISTRY

from headrace.errors import ProviderUnavailable
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2_grpc
from services.runtime.process.transport import CA, CERT, KEY, Certificates
from services.runtime.rpc.channels import open_channel
from tests.support.authority import Authority, Files
from tests.support.http2.channel import Channel
from tests.support.http2.ends import code_of
from tests.support.logged import Logged
from tests.support.scripted_llm import COUNT, serving_script

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def files(authority: Authority, h2: None, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Certificates that are set in the environment of this process."""
    files = authority.issue("memory")
    for name, path in {CERT: files.cert, KEY: files.key, CA: files.ca}.items():
        monkeypatch.setenv(name, path)
    return files


async def count_tokens(address: str, certificates: Certificates | None = None) -> int:
    """Call a service over a new connection."""
    context = certificates.get_client_context if certificates is not None else None
    async with Channel(address, message_bytes_max=1000, context=context) as channel:
        with rpc_errors():
            return (await llm_pb2_grpc.LlmServiceStub(channel).CountTokens(COUNT, timeout=50)).tokens


@pytest.mark.usefixtures("files")
async def test_servers_and_channels_use_the_certificates_of_the_settings(tmp_path: Path) -> None:
    async with serving_script(["a"], listen=f"127.0.0.1:0,unix:{tmp_path}/s") as suite:
        for address in suite.running.addresses:
            async with open_channel(address) as channel:
                assert (await llm_pb2_grpc.LlmServiceStub(channel).CountTokens(COUNT)).tokens == 1
            with pytest.raises(ProviderUnavailable):
                await count_tokens(address)


def days_left(file: str) -> float:
    """Return the days that Prometheus sees."""
    expires_s = REGISTRY.get_sample_value("headrace_certificate_expires_timestamp_seconds", {"file": file})
    assert expires_s is not None
    return (expires_s - time.time()) / 86400


async def test_prometheus_shows_when_certificates_expire(authority: Authority, files: Files) -> None:
    async with serving_script(["a"]):
        assert [round(days_left(file)) for file in (files.cert, files.ca)] == [1, 30]
        authority.issue("memory", valid_days=90)  # renewed; nobody has connected since
        assert round(days_left(files.cert)) == 90
        os.unlink(files.cert)
        assert math.isnan(days_left(files.cert))


@pytest.mark.usefixtures("files")
async def test_an_address_for_probes_serves_only_health_checks_without_tls() -> None:
    async with serving_script(["a"], listen="127.0.0.1:0,plain:127.0.0.1:0") as suite:
        address = suite.running.addresses[1].removeprefix("plain:")
        async with Channel(address, message_bytes_max=1000) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check  # pyright: ignore[reportAttributeAccessIssue] - untyped stub
            assert (await check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
            assert (
                await code_of(llm_pb2_grpc.LlmServiceStub(channel).CountTokens(COUNT)) is grpc.StatusCode.UNIMPLEMENTED
            )


async def test_a_renewed_certificate_is_shown_to_new_connections(files: Files, authority: Authority) -> None:
    client = Certificates(files.cert, files.key, files.ca)
    async with serving_script(["a"]) as suite:
        address = suite.running.addresses[0]
        assert await count_tokens(address, client) == 1
        authority.issue("memory", valid_days=-1)
        with pytest.raises(ProviderUnavailable):
            await count_tokens(address, client)
        authority.issue("memory")
        assert await count_tokens(address, client) == 1
        # The existing connection was not affected by all this.
        assert (await suite.stub.CountTokens(COUNT)).tokens == 1


async def test_a_new_authority_replaces_the_former_one(files: Files, authority: Authority, tmp_path: Path) -> None:
    (folder := tmp_path / "old").mkdir()
    old = Authority(folder, key=authority.key).issue("tools")
    async with serving_script(["a"]) as suite:
        address = suite.running.addresses[0]
        assert await count_tokens(address, Certificates(old.cert, old.key, old.ca)) == 1
        new = Authority(tmp_path).issue("memory")
        assert new == files
        assert await count_tokens(address, Certificates(new.cert, new.key, new.ca)) == 1
        with pytest.raises(ProviderUnavailable):
            await count_tokens(address, Certificates(old.cert, old.key, new.ca))


def list_renewal_steps(path: Path, content: bytes) -> list[Callable[[], object]]:
    """Return the steps of a half-done renewal: other content, no file, and the former content."""
    return [partial(path.write_bytes, content), path.unlink, partial(path.write_bytes, path.read_bytes())]


@pytest.mark.parametrize("content", [b"", b"nonsense"])
async def test_a_half_done_renewal_changes_nothing(content: bytes, files: Files, logged: Logged) -> None:
    client = Certificates(files.cert, files.key, files.ca)
    async with serving_script(["a"]) as suite:
        address = suite.running.addresses[0]
        for change in list_renewal_steps(Path(files.key), content):
            change()
            assert await count_tokens(address, client) == 1
    assert {line["event"] for line in logged.take_errors()} == {"certificates not read, the former ones stay"}


@pytest.mark.parametrize("missing", ["cert", "key", "ca"])
async def test_a_server_with_missing_certificates_does_not_start(missing: str, files: Files) -> None:
    os.unlink(getattr(files, missing))
    with pytest.raises(OSError, match=f"cannot use the certificates .*{getattr(files, missing)}"):
        async with serving_script():
            pass
    with pytest.raises(OSError, match="cannot use the certificates"):
        open_channel("127.0.0.1:1")


async def test_a_key_that_belongs_to_another_certificate_is_an_error(files: Files, authority: Authority) -> None:
    other = authority.issue("tools")
    with pytest.raises(OSError, match="cannot use the certificates"):
        Certificates(files.cert, other.key, files.ca)
