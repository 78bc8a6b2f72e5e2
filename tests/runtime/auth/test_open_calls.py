"""Open calls end with the credential that opened them: a token, a session, a key of the file. The clock is moved."""

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
async def holding_call(gate: Authenticator, who: Identity) -> AsyncGenerator[asyncio.Task[None]]:
    """Hold an open call of `who`, which is not ended at first."""

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
    moved_clock = MovedClock()
    before = CLOCK.set(moved_clock)
    yield moved_clock
    CLOCK.reset(before)


async def test_a_call_ends_with_its_token_and_others_continue(tmp_path: Path, clock: MovedClock) -> None:
    async with asyncio.timeout(100), open_authenticator(jwt_settings(tmp_path), has_certificates=False) as gate:
        expiring = await gate.identify_client({"authorization": f"Bearer {token()}"})
        assert expiring.ends_at > now_ms()
        lasting = replace(expiring, ends_at=expiring.ends_at + 3_600_000)
        async with holding_call(gate, expiring) as call, holding_call(gate, lasting) as other:
            clock.ahead_s += (expiring.ends_at - now_ms()) / 1000 + 1
            with pytest.raises(CredentialEnded, match="the token or the session has expired"):
                await call
            assert not other.done()


async def test_a_call_ends_when_its_key_is_removed_from_the_file(tmp_path: Path) -> None:
    keys = ApiKeys(keys_file(tmp_path, first="acme/ada", second="acme/bob"))
    gate = Authenticator(AuthSettings(auth="api_key", api_keys_file=keys.path), keys)
    ada, bob = [await gate.identify_client({"x-api-key": text}) for text in ("first", "second")]
    async with holding_call(gate, ada) as call, holding_call(gate, bob) as other:
        keys_file(tmp_path, second="acme/bob")
        keys.reload()
        gate.open_calls.look()
        with pytest.raises(CredentialEnded, match="not in its file any more"):
            await call
        assert not other.done()


async def test_a_call_ends_when_its_key_in_the_file_loses_a_role(tmp_path: Path) -> None:
    keys = ApiKeys(keys_file(tmp_path, first="acme/ada finance", second="acme/bob finance"))
    gate = Authenticator(AuthSettings(auth="api_key", api_keys_file=keys.path), keys)
    ada, bob = [await gate.identify_client({"x-api-key": text}) for text in ("first", "second")]
    async with holding_call(gate, ada) as call, holding_call(gate, bob) as other:
        keys_file(tmp_path, first="acme/ada", second="acme/bob finance,support")
        keys.reload()
        gate.open_calls.look()
        with pytest.raises(CredentialEnded, match="fewer roles or scopes"):
            await call
        assert not other.done()


@pytest.mark.parametrize("way", ["token", "file", "known"])
async def test_a_suspended_user_is_refused_and_their_open_calls_end(tmp_path: Path, way: str) -> None:
    records = list[keys_pb2.KeyRecord]()

    async def read(after_revision: int) -> keys_pb2.ReadKeyChangesResponse:
        later = records[after_revision:]
        return keys_pb2.ReadKeyChangesResponse(keys=later, revision=after_revision + len(later))

    def suspend(user: str, *, revoked: bool = False) -> None:
        record = keys_pb2.KeyRecord(key_id=user, tenant="acme", user=user, suspends=True, revoked=revoked)
        records.append(record)

    filed = key_settings(tmp_path, first="acme/ada", second="acme/bob")
    settings = replace(jwt_settings(tmp_path), auth="jwt,api_key", api_keys_file=filed.api_keys_file, keys_poll_s=0.01)
    records.append(
        keys_pb2.KeyRecord(
            key_id="k",
            sha256=hashlib.sha256(b"hrk_a").digest(),
            tenant="acme",
            user="cat",
            scopes=["ask"],
            makers=["ada"],
        )
    )
    headers = {
        "token": {"authorization": f"Bearer {token(sub='ada')}"},
        "file": {"x-api-key": "first"},
        "known": {"x-api-key": "hrk_a"},  # Cat's, whose text Ada knows
    }[way]
    has_looked = asyncio.Event()
    async with (
        asyncio.timeout(100),
        following_keys(settings, read) as keys,
        open_authenticator(settings, keys, has_certificates=False) as gate,
    ):
        keys.listen(has_looked.set)
        who, bob = await gate.identify_client(headers), await gate.identify_client({"x-api-key": "second"})
        async with holding_call(gate, who) as call, holding_call(gate, bob) as other:
            suspend("ada")
            with pytest.raises(CredentialEnded, match="user 'ada' is suspended"):
                await call
            with pytest.raises(CredentialEnded, match="user 'ada' is suspended"):
                await gate.identify_client(headers)
            assert not other.done()
        suspend("ada", revoked=True)
        for _ in range(2):
            has_looked.clear()
            await has_looked.wait()
        assert await gate.identify_client(headers) == who


async def test_nobody_is_admitted_before_the_suspended_users_are_known(tmp_path: Path) -> None:
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


async def test_a_call_with_a_forwarded_credential_is_ended_by_the_service_that_received_it(tmp_path: Path) -> None:
    settings = key_settings(tmp_path, first="acme/ada")
    async with open_authenticator(settings, has_certificates=False) as gate:
        forwarded = Identity("acme", "ada", "api_key:0123456789ab")
        async with holding_call(gate, forwarded) as call:
            gate.open_calls.look()
            await asyncio.sleep(0)
            assert not call.done()
