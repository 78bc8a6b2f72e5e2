"""deploy/gateway and the services authenticate each other: by certificates, which are renewed, or by the token."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from headrace.tls import Tls
from services.runtime.auth.settings import API_KEY, PEERS, AuthSettings
from services.runtime.process.config import ServerSettings
from services.runtime.process.transport import CA, CERT, KEY
from services.runtime.rpc.server import serving_grpc
from tests.support.authority import Authority, Files
from tests.support.facade import fronts
from tests.support.facade.fronts import Timing, gateway
from tests.support.facade.scripted import Script, ScriptedMemory, answering, make_peer_services, read_all_frames

TOKEN = "t" * 32
TEST_TIMEOUT_S = 200.0


def environment(files: Files) -> dict[str, str]:
    return {CERT: files.cert, KEY: files.key, CA: files.ca}


@pytest.fixture
def settings(authority: Authority, h2: None, monkeypatch: pytest.MonkeyPatch) -> ServerSettings:
    """Settings of an orchestrator with certificates that only services may call; connections are renewed often."""
    files = authority.issue("orchestrator")
    for name, path in environment(files).items():
        monkeypatch.setenv(name, path)
    return ServerSettings(
        listen="127.0.0.1:0", tls_cert=files.cert, tls_key=files.key, tls_ca=files.ca, connection_age_s=0.2, drain_s=0
    )


@asynccontextmanager
async def gateway_before(
    settings: ServerSettings, env: Mapping[str, str], script: Script | None = None
) -> AsyncGenerator[aiohttp.ClientSession]:
    """Run a gateway with `env` in front of a service with `settings`."""
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, make_peer_services(script or Script(), ScriptedMemory())) as running,
        gateway(dict.fromkeys(fronts.PEERS, running.addresses[0]), Timing(), env) as url,
        aiohttp.ClientSession(url) as http,
    ):
        yield http


async def status(http: aiohttp.ClientSession, **headers: str) -> int:
    async with http.get("/api/agents", headers=headers) as response:
        return response.status


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while not await holds():
            await asyncio.sleep(0.02)


async def test_with_the_facades_certificate_the_gateway_calls_as_the_facade(
    settings: ServerSettings, authority: Authority
) -> None:
    env = environment(authority.issue("facade"))
    async with gateway_before(settings, env, Script(query=answering("a"))) as http:
        assert await status(http) == 200
        async with http.post("/api/query", json={"message": "hi"}) as response:
            assert (await read_all_frames(response))[-1].data == b"[DONE]"


async def test_with_another_services_certificate_the_gateway_is_refused(
    settings: ServerSettings, authority: Authority
) -> None:
    async with gateway_before(settings, environment(authority.issue("llm_gateway"))) as http:
        assert await status(http) == 403


@pytest.mark.parametrize("shown", ["nothing", "a stranger's", "ours, and it trusts a stranger"])
async def test_without_a_certificate_of_the_suite_there_is_no_connection(
    shown: str, settings: ServerSettings, authority: Authority, tmp_path: Path
) -> None:
    (folder := tmp_path / "stranger").mkdir()
    ours, theirs = authority.issue("facade"), Authority(folder).issue("facade")
    env: dict[str, str] = {
        "nothing": environment(Files("", "", "")),
        "a stranger's": environment(Files(theirs.cert, theirs.key, ours.ca)),
        "ours, and it trusts a stranger": environment(Files(ours.cert, ours.key, theirs.ca)),
    }[shown]
    async with gateway_before(settings, env) as http:
        assert await status(http) == 503


async def test_a_renewed_certificate_is_used_for_new_connections(
    settings: ServerSettings, authority: Authority
) -> None:
    async with gateway_before(settings, environment(authority.issue("facade"))) as http:
        assert await status(http) == 200

        async def is_refused() -> bool:
            return await status(http) == 503

        async def is_served() -> bool:
            return await status(http) == 200

        files = authority.issue("facade", valid_days=-1)
        await wait_until(is_refused)
        await asyncio.to_thread(Path(files.key).write_text, "half of a renewal")
        assert await status(http) == 503
        authority.issue("facade")
        await wait_until(is_served)


async def test_browsers_see_the_gateways_renewed_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("edge")
    trusting = Tls(files.ca).context()

    async def shown(port: int) -> bytes:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return certificate

    addresses = dict.fromkeys(fronts.PEERS, "unix:/nobody")
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        gateway(addresses, Timing(), tls_certificate=files.cert, tls_key=files.key) as url,
    ):
        assert url.startswith("https://")
        async with aiohttp.ClientSession(url) as http, http.get("/healthz", ssl=trusting) as response:
            assert response.status == 200
        port = int(url.rpartition(":")[2])
        first = await shown(port)
        assert await shown(port) == first
        authority.issue("edge")
        while await shown(port) == first:  # the files are read once a second
            await asyncio.sleep(0.1)


async def test_with_the_token_the_gateway_calls_for_the_owner_of_the_credential(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # sha256 of "secret"
    keys.write_text(f'{{"keys": [{{"sha256": "{digest}", "tenant": "acme", "user": "ada"}}]}}')
    auth = AuthSettings(auth=API_KEY, internal_token=TOKEN, api_keys_file=keys)
    settings, script = ServerSettings(listen=f"unix:{tmp_path}/s", auth=auth, drain_s=0), Script()
    async with gateway_before(settings, {"HEADRACE_INTERNAL_TOKEN": TOKEN}, script) as http:
        assert await status(http) == 401
        assert await status(http, **{"X-Api-Key": "secret"}) == 200
    assert script.metadata[-1]["x-headrace-caller"] == "facade"
    async with gateway_before(settings, {"HEADRACE_INTERNAL_TOKEN": "u" * 32}) as http:
        assert await status(http, **{"X-Api-Key": "secret"}) == 401


async def test_services_that_admit_only_services_refuse_the_gateways_clients(tmp_path: Path) -> None:
    settings = ServerSettings(
        listen=f"unix:{tmp_path}/s", auth=AuthSettings(auth=PEERS, internal_token=TOKEN), drain_s=0
    )
    async with gateway_before(settings, {"HEADRACE_INTERNAL_TOKEN": TOKEN}) as http:
        assert await status(http) == 401
