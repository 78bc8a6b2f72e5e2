"""What is open ends with the credential that opened it: a token, a session, a key of the file. The clock is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import CredentialEnded
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.identity import Identity
from services.runtime.auth.keys.api_keys import ApiKeys
from services.runtime.auth.settings import AuthSettings
from services.runtime.auth.setup import open_authenticator
from services.runtime.clock import CLOCK, now_ms
from tests.support.issuing import jwt_settings, key_settings, keys_file, token
from tests.support.moved_clock import MovedClock


@asynccontextmanager
async def staying(gate: Authenticator, who: Identity) -> AsyncGenerator[asyncio.Task[None]]:
    """An open call of `who`, which goes on at first."""

    async def stay() -> None:
        async with gate.ending_with_credential(who):
            await asyncio.Event().wait()

    call = asyncio.create_task(stay())
    await asyncio.sleep(0)
    gate.open_calls.look()
    await asyncio.sleep(0)
    assert not call.done()
    yield call
    call.cancel()


@pytest.fixture
def clock() -> Generator[MovedClock]:
    moved = MovedClock()
    before = CLOCK.set(moved)
    yield moved
    CLOCK.reset(before)


async def test_a_call_ends_with_its_token_and_others_go_on(tmp_path: Path, clock: MovedClock) -> None:
    async with asyncio.timeout(100), open_authenticator(jwt_settings(tmp_path), has_certificates=False) as gate:
        brief = await gate.identify_client({"authorization": f"Bearer {token()}"})
        assert brief.ends_at > now_ms()
        lasting = replace(brief, ends_at=brief.ends_at + 3_600_000)
        async with staying(gate, brief) as call, staying(gate, lasting) as other:
            clock.ahead_s += (brief.ends_at - now_ms()) / 1000 + 1
            with pytest.raises(CredentialEnded, match="the token or the session has expired"):
                await call
            assert not other.done()


async def test_a_call_ends_when_its_key_is_taken_out_of_the_file(tmp_path: Path) -> None:
    keys = ApiKeys(keys_file(tmp_path, first="acme/ada", second="acme/bob"))
    gate = Authenticator(AuthSettings(auth="api_key", api_keys_file=keys.path), keys)
    ada, bob = [await gate.identify_client({"x-api-key": text}) for text in ("first", "second")]
    async with staying(gate, ada) as call, staying(gate, bob) as other:
        keys_file(tmp_path, second="acme/bob")
        keys.reload()
        gate.open_calls.look()
        with pytest.raises(CredentialEnded, match="not in its file any more"):
            await call
        assert not other.done()


async def test_what_another_service_was_shown_is_that_services_to_end(tmp_path: Path) -> None:
    settings = key_settings(tmp_path, first="acme/ada")
    async with open_authenticator(settings, has_certificates=False) as gate:
        told = Identity("acme", "ada", "api_key:0123456789ab")
        async with staying(gate, told) as call:
            gate.open_calls.look()
            await asyncio.sleep(0)
            assert not call.done()
