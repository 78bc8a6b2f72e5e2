"""Which names in a real certificate, presented in a real handshake, identify a calling service."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from headrace.errors import PermissionDenied, ProviderUnavailable, Unauthenticated
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.process.transport import CA, CERT, KEY, VARIABLE, Certificates
from services.runtime.rpc.server import serving_grpc
from tests.support.authority import Authority, Files
from tests.support.http2.channel import Channel
from tests.support.issuing import key_settings
from tests.support.scripted_llm import COUNT, ScriptedLlm, build_service

TEST_TIMEOUT_S = 100.0

ORCHESTRATOR = "spiffe://headrace/orchestrator"
"""It may count tokens; clients and the facade may not."""

FOR_ADA = (("x-headrace-tenant", "acme"), ("x-headrace-user", "ada"))


async def count_tokens(folder: Path, server: Files, client: Files, monkeypatch: pytest.MonkeyPatch, **auth: str) -> int:
    """Call a service that requires credentials, with the certificate `client` and no credential."""
    monkeypatch.setenv(VARIABLE, "h2")
    for name, path in {CERT: server.cert, KEY: server.key, CA: server.ca}.items():
        monkeypatch.setenv(name, path)
    settings = ServerSettings(
        listen="127.0.0.1:0",
        drain_s=0,
        auth=replace(key_settings(folder), **auth),
        tls_cert=server.cert,
        tls_key=server.key,
        tls_ca=server.ca,
    )
    llm = ScriptedLlm(["a"])  # pyright: ignore[reportAbstractUsage] - ListModels is left out on purpose
    certificates = Certificates(client.cert, client.key, client.ca)
    async with asyncio.timeout(TEST_TIMEOUT_S), serving_grpc(settings, [build_service(llm)]) as running:
        address = running.addresses[0]
        async with Channel(address, message_bytes_max=1000, context=certificates.get_client_context) as channel:
            with rpc_errors():
                return (await llm_pb2_grpc.LlmServiceStub(channel).CountTokens(COUNT, metadata=FOR_ADA)).tokens


async def test_a_uri_name_identifies_the_caller(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = authority.issue("llm_gateway"), authority.issue("orchestrator")
    assert await count_tokens(tmp_path, server, client, monkeypatch) == 1
    facade = authority.issue("facade")
    with pytest.raises(PermissionDenied, match="facade may not call"):
        await count_tokens(tmp_path, server, facade, monkeypatch)


async def test_a_service_of_another_installation_with_the_same_authority_is_refused(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = authority.issue("llm_gateway")
    ours = authority.issue("ours", workload=x509.UniformResourceIdentifier("spiffe://second/orchestrator"))
    assert await count_tokens(tmp_path, server, ours, monkeypatch, trust_domain="second") == 1
    theirs = authority.issue("theirs", workload=x509.UniformResourceIdentifier(ORCHESTRATOR))
    with pytest.raises(Unauthenticated):
        await count_tokens(tmp_path, server, theirs, monkeypatch, trust_domain="second")


@pytest.mark.parametrize(
    "name",
    [
        x509.DNSName(ORCHESTRATOR),
        x509.DNSName(f"x,URI:{ORCHESTRATOR}"),
        x509.DNSName(f"x, URI:{ORCHESTRATOR}"),
        x509.DNSName(f"x\nURI:{ORCHESTRATOR}"),
        x509.RFC822Name(ORCHESTRATOR),
        x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
        x509.DirectoryName(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, ORCHESTRATOR)])),
        x509.UniformResourceIdentifier(f"https://{ORCHESTRATOR}"),
        x509.UniformResourceIdentifier("Spiffe://headrace/orchestrator"),
        x509.UniformResourceIdentifier("spiffe://other/orchestrator"),
    ],
    ids=str,
)
async def test_a_name_that_only_resembles_a_services_name_is_refused(
    name: x509.GeneralName, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = authority.issue("llm_gateway")
    client = authority.issue("stranger", workload=name, subject=ORCHESTRATOR)
    with pytest.raises(Unauthenticated):
        await count_tokens(tmp_path, server, client, monkeypatch)


def write_both_authorities(one: Files, other: Files, path: Path) -> str:
    path.write_bytes(Path(one.ca).read_bytes() + Path(other.ca).read_bytes())
    return str(path)


async def test_an_authority_that_may_not_name_services_cannot_sign_for_one(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "clients").mkdir()
    no_service = x509.NameConstraints(None, [x509.UniformResourceIdentifier("headrace")])
    clients = Authority(folder, "clients", constraints=no_service)
    server, client = authority.issue("llm_gateway"), clients.issue("batch", workload=x509.DNSName("batch"))
    service = clients.issue("orchestrator")
    both = write_both_authorities(server, client, tmp_path / "both.crt")
    server = Files(server.cert, server.key, both)
    with pytest.raises(Unauthenticated):
        await count_tokens(tmp_path, server, Files(client.cert, client.key, both), monkeypatch)
    with pytest.raises(ProviderUnavailable):
        await count_tokens(tmp_path, server, Files(service.cert, service.key, both), monkeypatch)
