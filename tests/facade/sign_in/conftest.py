"""A facade where users sign in, in front of a suite with two tenants, and a scripted browser."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from services.facade import service as facade
from services.facade.config import Config
from services.facade.sign_in.settings import SignInSettings
from services.runtime.auth.callers import FACADE
from services.runtime.process.config import ProcessSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from tests.support.facade.fronts import PEERS, Timing, gateway
from tests.support.sign_in.office import KEY, PUBLIC, Office, OpenOffice
from tests.support.sign_in.provider import CLIENT, SECRET, serving_provider
from tests.support.tenants.suite import TenantSuite, serving_tenants


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TenantSuite]:
    async with serving_tenants(tmp_path_factory.mktemp("suite")) as suite:
        yield suite


@pytest.fixture
def opening(suite: TenantSuite) -> OpenOffice:
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
                    open_channel(suite.addresses[name], build_caller_metadata(trusting, FACADE))
                )
                for name in PEERS
            }
            config = Config(
                port=port,
                process=ProcessSettings(drain_s=0, auth=trusting),
                sign_in=SignInSettings(**(given | changed)),
            )
            address = await stack.enter_async_context(facade.serve(config, peers))
            if is_behind:
                addresses = {name: suite.addresses[name] for name in PEERS}
                env = {"HEADRACE_AUTH": "api_key", "HEADRACE_INTERNAL_TOKEN": trusting.internal_token}
                fronting = gateway(addresses, Timing(), env, FACADE_ADDRESS=address)
                address = (await stack.enter_async_context(fronting)).removeprefix("http://")
            http = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
            async with asyncio.timeout(120):
                yield Office(f"http://{address}", provider, http)

    return opened
