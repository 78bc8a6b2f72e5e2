"""A facade at which people sign in, before a suite with two tenants, and a browser without a screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from services.facade import service as facade
from services.facade.config import Config
from services.facade.sign_in.settings import SignInSettings
from services.runtime.auth.caller_credentials import build_caller_metadata
from services.runtime.auth.callers import FACADE
from services.runtime.process.config import ProcessSettings
from services.runtime.rpc.channels import open_channel
from tests.conformance.fronts import Timing, gateway
from tests.facade.sign_in.scripted_provider import CLIENT, SECRET, ScriptedProvider, serving_provider
from tests.tenants.house import House, house

PUBLIC = "http://localhost:8080"
"""What the facade takes for its address; a test's browser reaches it at another one."""

KEY, OLD_KEY = "the first key of all sessions' cookies", "an older key of all sessions' cookies"

SERVICES = {"orchestrator": "AgentService", "memory": "MemoryService", "tools": "ToolService"}

SESSION, SIGN_IN = "headrace-session", "headrace-sign-in"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    text: str
    json: Any


class ScriptedBrowser:
    """Keeps cookies as they are set, and goes nowhere by itself."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self.cookies: dict[str, str] = {}
        self.attributes: SimpleCookie = SimpleCookie()

    async def send(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        shown = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        async with self._http.request(
            method, self._url + path, json=body, headers=shown, allow_redirects=False
        ) as response:
            text = await response.text()
            for name, morsel in response.cookies.items():
                self.attributes[name] = morsel.value
                self.attributes[name].update(morsel)
                self.cookies[name] = morsel.value
                if not morsel.value:
                    del self.cookies[name]
            is_json = response.content_type == "application/json"
            return Answer(response.status, response.headers, text, await response.json() if is_json else None)

    async def begin(self) -> str:
        """Go to the provider and come back; return the way back."""
        there = await self.send("/auth/sign-in")
        assert there.status == 303, there.text
        async with self._http.get(there.headers["Location"], allow_redirects=False) as sent_back:
            back = urlsplit(sent_back.headers["Location"])
        assert f"{back.scheme}://{back.netloc}" == PUBLIC
        return f"{back.path}?{back.query}"

    async def sign_in(self) -> None:
        answer = await self.send(await self.begin())
        assert (answer.status, answer.headers["Location"]) == (303, "/"), answer.text

    async def whose(self) -> dict[str, Any]:
        """What the suite says of who asks."""
        answer = await self.send("/api/identity")
        assert answer.status == 200, answer.text
        return answer.json["data"]


@dataclass
class Office:
    """A facade where people sign in."""

    url: str
    provider: ScriptedProvider
    http: aiohttp.ClientSession

    def open_browser(self) -> ScriptedBrowser:
        return ScriptedBrowser(self.http, self.url)


OpenOffice = Callable[..., AbstractAsyncContextManager[Office]]


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    async with house(tmp_path_factory.mktemp("suite")) as it:
        yield it


@pytest.fixture
def opening(suite: House) -> OpenOffice:
    """Open a facade at which people sign in; keywords change its settings, `auth` those of all tokens. With
    `is_behind` the Go gateway is asked, which stands before it."""

    @asynccontextmanager
    async def opened(
        *,
        auth: dict[str, Any] | None = None,
        public_url: str = PUBLIC,
        port: int = 0,
        is_behind: bool = False,
        **changed: Any,
    ) -> AsyncGenerator[Office]:
        async with AsyncExitStack() as stack:
            provider = await stack.enter_async_context(serving_provider())
            given: dict[str, Any] = {
                "oidc_issuer": provider.url,
                "oidc_client_id": CLIENT,
                "oidc_client_secret": SECRET,
                "public_url": public_url,
                "session_keys": KEY,
            }
            trusting = replace(suite.settings, **(auth or {}))
            peers = {
                name: await stack.enter_async_context(
                    open_channel(suite.addresses[service], build_caller_metadata(trusting, FACADE))
                )
                for name, service in SERVICES.items()
            }
            config = Config(
                port=port,
                process=ProcessSettings(drain_s=0, auth=trusting),
                sign_in=SignInSettings(**(given | changed)),
            )
            address = await stack.enter_async_context(facade.serve(config, peers))
            if is_behind:
                addresses = {name: suite.addresses[service] for name, service in SERVICES.items()}
                shown = {"HEADRACE_AUTH": "api_key", "HEADRACE_INTERNAL_TOKEN": trusting.internal_token}
                fronting = gateway(addresses, Timing(), shown, FACADE_ADDRESS=address)
                address = (await stack.enter_async_context(fronting)).removeprefix("http://")
            http = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
            async with asyncio.timeout(120):
                yield Office(f"http://{address}", provider, http)

    return opened
