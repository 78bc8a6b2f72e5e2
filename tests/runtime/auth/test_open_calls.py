"""What is open ends with the credential that opened it: a token, a session, a key of the file. The clock is moved."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import CredentialEnded, Overloaded
from headrace.v1 import keys_pb2
from services.runtime.auth.api_keys import ApiKeys
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.identity import Identity
from services.runtime.auth.settings import AuthSettings
from services.runtime.auth.setup import following_keys, open_authenticator
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


async def test_a_call_ends_when_its_key_of_the_file_loses_a_role(tmp_path: Path) -> None:
    keys = ApiKeys(keys_file(tmp_path, first="acme/ada finance", second="acme/bob finance"))
    gate = Authenticator(AuthSettings(auth="api_key", api_keys_file=keys.path), keys)
    ada, bob = [await gate.identify_client({"x-api-key": text}) for text in ("first", "second")]
    async with staying(gate, ada) as call, staying(gate, bob) as other:
        keys_file(tmp_path, first="acme/ada", second="acme/bob finance,support")
        keys.reload()
        gate.open_calls.look()
        with pytest.raises(CredentialEnded, match="fewer roles or scopes"):
            await call
        assert not other.done()


@pytest.mark.parametrize("way", ["token", "file", "known"])
async def test_a_suspended_user_is_refused_whatever_the_credential_and_what_is_open_ends(
    tmp_path: Path, way: str
) -> None:
    found = list[keys_pb2.KeyRecord]()

    async def read(after_revision: int) -> keys_pb2.ReadKeyChangesResponse:
        later = found[after_revision:]
        return keys_pb2.ReadKeyChangesResponse(keys=later, revision=after_revision + len(later))

    def suspend(user: str, *, revoked: bool = False) -> None:
        record = keys_pb2.KeyRecord(key_id=user, tenant="acme", user=user, suspends=True, revoked=revoked)
        found.append(record)

    filed = key_settings(tmp_path, first="acme/ada", second="acme/bob")
    settings = replace(jwt_settings(tmp_path), auth="jwt,api_key", api_keys_file=filed.api_keys_file, keys_poll_s=0.01)
    found.append(
        keys_pb2.KeyRecord(
            key_id="k",
            sha256=hashlib.sha256(b"hrk_a").digest(),
            tenant="acme",
            user="cat",
            scopes=["ask"],
            makers=["ada"],
        )
    )
    shown = {
        "token": {"authorization": f"Bearer {token(sub='ada')}"},
        "file": {"x-api-key": "first"},
        "known": {"x-api-key": "hrk_a"},  # Cat's, whose text Ada knows
    }[way]
    looked = asyncio.Event()
    async with (
        asyncio.timeout(100),
        following_keys(settings, read) as keys,
        open_authenticator(settings, keys, has_certificates=False) as gate,
    ):
        keys.listen(looked.set)
        who, bob = await gate.identify_client(shown), await gate.identify_client({"x-api-key": "second"})
        async with staying(gate, who) as call, staying(gate, bob) as other:
            suspend("ada")
            with pytest.raises(CredentialEnded, match="user 'ada' is suspended"):
                await call
            with pytest.raises(CredentialEnded, match="user 'ada' is suspended"):
                await gate.identify_client(shown)
            assert not other.done()
        suspend("ada", revoked=True)
        for _ in range(2):
            looked.clear()
            await looked.wait()
        assert await gate.identify_client(shown) == who


async def test_nobody_is_let_in_before_it_is_known_who_is_suspended(tmp_path: Path) -> None:
    async def read(after_revision: int) -> keys_pb2.ReadKeyChangesResponse:
        raise Overloaded("memory is away")

    settings = jwt_settings(tmp_path)
    async with (
        asyncio.timeout(100),
        following_keys(settings, read) as keys,
        open_authenticator(settings, keys, has_certificates=False) as gate,
    ):
        with pytest.raises(Overloaded, match="suspended users are not known"):
            await gate.identify_client({"authorization": f"Bearer {token()}"})


async def test_what_another_service_was_shown_is_that_services_to_end(tmp_path: Path) -> None:
    settings = key_settings(tmp_path, first="acme/ada")
    async with open_authenticator(settings, has_certificates=False) as gate:
        told = Identity("acme", "ada", "api_key:0123456789ab")
        async with staying(gate, told) as call:
            gate.open_calls.look()
            await asyncio.sleep(0)
            assert not call.done()
