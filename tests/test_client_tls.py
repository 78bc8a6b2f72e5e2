"""The client over TLS with a real server: which servers it trusts, and which certificate it presents."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.errors import PermissionDenied, ProviderUnavailable
from headrace.tls import Tls
from services.runtime.process.config import ServerSettings
from services.runtime.process.transport import CA, CERT, KEY
from services.runtime.rpc.server import serving_grpc
from tests.support.authority import Authority, Files
from tests.support.facade.scripted import CHAT, Script, ScriptedMemory, answering, make_peer_services


@pytest.fixture
def server(authority: Authority, h2: None, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Issue the server's certificate and set it in this process's environment."""
    files = authority.issue("orchestrator")
    monkeypatch.setenv(CERT, files.cert)
    monkeypatch.setenv(KEY, files.key)
    return files


@pytest.fixture
def mutual(server: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Like `server`, and the server requires its callers' certificates."""
    monkeypatch.setenv(CA, server.ca)
    return server


@asynccontextmanager
async def client(files: Files, tls: Tls | None, *, ca: str = "") -> AsyncGenerator[Client]:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0, tls_cert=files.cert, tls_key=files.key, tls_ca=ca)
    script = Script(query=answering("a"))
    async with asyncio.timeout(100), serving_grpc(settings, make_peer_services(script, ScriptedMemory())) as running:
        (address,) = running.addresses
        async with Client(address, memory_address=address, tls=tls) as opened:
            yield opened


def showing(files: Files) -> Tls:
    return Tls(files.ca, files.cert, files.key)


async def test_the_client_trusts_servers_signed_by_its_ca(server: Files) -> None:
    async with client(server, Tls(server.ca)) as headrace:
        assert [agent.key for agent in await headrace.agents()] == ["helper"]
        assert (await headrace.chats()).chats[0].chat_id == CHAT
        async with headrace.ask("hi") as deltas:
            assert len([delta async for delta in deltas]) == len(answering("a"))


async def test_the_client_presents_its_certificate_to_a_server_that_requests_it(
    mutual: Files, authority: Authority
) -> None:
    async with client(mutual, showing(authority.issue("client")), ca=mutual.ca) as headrace:
        assert [agent.key for agent in await headrace.agents()] == ["helper"]


@pytest.mark.parametrize("presented", ["nothing", "a stranger's certificate"])
async def test_a_client_without_a_certificate_of_the_ca_is_refused(
    presented: str, mutual: Files, stranger: Authority
) -> None:
    theirs = stranger.issue("client") if presented != "nothing" else Files("", "", "")
    async with client(mutual, Tls(mutual.ca, theirs.cert, theirs.key), ca=mutual.ca) as headrace:
        with pytest.raises(ProviderUnavailable):
            await headrace.agents()


async def test_a_client_with_a_services_certificate_has_only_that_services_rights(
    mutual: Files, authority: Authority
) -> None:
    async with client(mutual, showing(authority.issue("llm_gateway")), ca=mutual.ca) as headrace:
        with pytest.raises(PermissionDenied):
            await headrace.agents()


@pytest.mark.parametrize("believed", ["a stranger", "everybody's CAs", "plain text"])
async def test_an_untrusted_server_receives_no_call(believed: str, server: Files, stranger: Authority) -> None:
    tls = {"a stranger": Tls(stranger.issue("client").ca), "everybody's CAs": Tls(), "plain text": None}[believed]
    async with client(server, tls) as headrace:
        with pytest.raises(ProviderUnavailable):
            await headrace.agents()


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
@pytest.mark.parametrize("content", [None, b"nonsense"])
async def test_unusable_certificate_files_are_named_when_the_client_opens(
    name: str, content: bytes | None, server: Files
) -> None:
    path = Path(getattr(server, name))
    await asyncio.to_thread(path.unlink) if content is None else await asyncio.to_thread(path.write_bytes, content)
    with pytest.raises(OSError, match=f"cannot use the certificates .*{path}"):
        async with Client(tls=showing(server)):
            pass


@pytest.mark.parametrize("half", [{"certificate": "x"}, {"key": "x"}])
def test_a_certificate_without_its_key_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="both or neither"):
        Tls(**half)
