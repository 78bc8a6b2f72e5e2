"""The client over TLS, against a real server: whom it believes, and what it shows."""

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
from tests.support.facade.scripted import CHAT, Script, ScriptedMemory, answering, served


@pytest.fixture
def server(authority: Authority, h2: None, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The server's certificate, in the environment of this process."""
    files = authority.issue("orchestrator")
    monkeypatch.setenv(CERT, files.cert)
    monkeypatch.setenv(KEY, files.key)
    return files


@pytest.fixture
def mutual(server: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The same, and the server asks for its callers' certificates."""
    monkeypatch.setenv(CA, server.ca)
    return server


@asynccontextmanager
async def client(files: Files, tls: Tls | None, *, ca: str = "") -> AsyncGenerator[Client]:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0, tls_cert=files.cert, tls_key=files.key, tls_ca=ca)
    script = Script(query=answering("a"))
    async with asyncio.timeout(100), serving_grpc(settings, served(script, ScriptedMemory())) as running:
        (address,) = running.addresses
        async with Client(address, memory_address=address, tls=tls) as opened:
            yield opened


def showing(files: Files) -> Tls:
    return Tls(files.ca, files.cert, files.key)


async def test_it_believes_whom_its_ca_has_signed(server: Files) -> None:
    async with client(server, Tls(server.ca)) as headrace:
        assert [agent.key for agent in await headrace.agents()] == ["helper"]
        assert (await headrace.chats()).chats[0].chat_id == CHAT
        async with headrace.ask("hi") as deltas:
            assert len([delta async for delta in deltas]) == len(answering("a"))


async def test_it_shows_its_certificate_to_a_server_that_asks_for_one(mutual: Files, authority: Authority) -> None:
    async with client(mutual, showing(authority.issue("client")), ca=mutual.ca) as headrace:
        assert [agent.key for agent in await headrace.agents()] == ["helper"]


@pytest.mark.parametrize("shown", ["nothing", "a stranger's certificate"])
async def test_without_a_certificate_of_the_ca_it_is_not_let_in(shown: str, mutual: Files, stranger: Authority) -> None:
    theirs = stranger.issue("client") if shown != "nothing" else Files("", "", "")
    async with client(mutual, Tls(mutual.ca, theirs.cert, theirs.key), ca=mutual.ca) as headrace:
        with pytest.raises(ProviderUnavailable):
            await headrace.agents()


async def test_with_a_services_certificate_it_may_do_what_that_service_may(mutual: Files, authority: Authority) -> None:
    async with client(mutual, showing(authority.issue("llm_gateway")), ca=mutual.ca) as headrace:
        with pytest.raises(PermissionDenied):
            await headrace.agents()


@pytest.mark.parametrize("believed", ["a stranger", "everybody's CAs", "plain text"])
async def test_a_server_that_it_does_not_believe_is_not_spoken_to(
    believed: str, server: Files, stranger: Authority
) -> None:
    tls = {"a stranger": Tls(stranger.issue("client").ca), "everybody's CAs": Tls(), "plain text": None}[believed]
    async with client(server, tls) as headrace:
        with pytest.raises(ProviderUnavailable):
            await headrace.agents()


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
@pytest.mark.parametrize("content", [None, b"nonsense"])
async def test_files_that_cannot_be_used_are_named_when_it_is_opened(
    name: str, content: bytes | None, server: Files
) -> None:
    path = Path(getattr(server, name))
    await asyncio.to_thread(path.unlink) if content is None else await asyncio.to_thread(path.write_bytes, content)
    with pytest.raises(OSError, match=f"cannot use the certificates .*{path}"):
        async with Client(tls=showing(server)):
            pass


@pytest.mark.parametrize("half", [{"certificate": "x"}, {"key": "x"}])
def test_a_certificate_without_its_key_is_a_mistake(half: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="both or neither"):
        Tls(**half)
