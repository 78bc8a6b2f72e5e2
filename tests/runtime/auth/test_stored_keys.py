"""API keys stored in memory, as a service knows them: a scripted memory, and a clock that the test moves."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CredentialEnded, HeadraceError, Overloaded, QuotaExceeded, Unauthenticated
from headrace.v1 import keys_pb2
from services.runtime.auth import stored_keys
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.identity import Identity, acting_as, forward_identity
from services.runtime.auth.settings import AuthSettings
from services.runtime.auth.setup import following_keys, open_authenticator
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.clock import CLOCK
from tests.support.issuing import key_settings
from tests.support.moved_clock import MovedClock

GOOD_S = 60.0


@dataclass
class Memory:
    """The keys that memory stores, and the number of reads."""

    keys: dict[str, keys_pb2.KeyRecord] = field(default_factory=dict[str, keys_pb2.KeyRecord])
    revisions: dict[str, int] = field(default_factory=dict[str, int])
    reads: int = 0
    failure: HeadraceError | None = None
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after each look; a waiting test clears it."""

    def put(self, text: str, **fields: Any) -> None:
        key_id = f"id of {text}"
        record = keys_pb2.KeyRecord(
            key_id=key_id, sha256=hashlib.sha256(text.encode()).digest(), tenant="acme", user="ada", scopes=["ask"]
        )
        record.MergeFrom(keys_pb2.KeyRecord(**fields))
        self.keys[key_id] = record
        self.revisions[key_id] = max(self.revisions.values(), default=0) + 1

    async def read(self, after_revision: int) -> keys_pb2.ReadKeyChangesResponse:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        changes = sorted((at, key_id) for key_id, at in self.revisions.items() if at > after_revision)
        page = changes[:2]
        return keys_pb2.ReadKeyChangesResponse(
            keys=[self.keys[key_id] for _, key_id in page],
            revision=page[-1][0] if page else after_revision,
            has_more=len(changes) > 2,
        )


@dataclass
class Service:
    memory: Memory
    clock: MovedClock
    keys: StoredKeys
    gate: Authenticator

    async def show(self, text: str) -> Identity:
        return await self.gate.identify_client({"x-api-key": text})

    async def stay(self, who: Identity) -> None:
        """Hold an open call."""
        async with self.gate.ending_with_credential(who):
            await asyncio.Event().wait()

    async def next_look(self) -> None:
        """Wait for the end of a look that starts now or later."""
        for _ in range(2):
            self.memory.looked.clear()
            await self.memory.looked.wait()


@asynccontextmanager
async def keyed_service(folder: Path, poll_s: float = 0.02) -> AsyncGenerator[Service]:
    memory, clock = Memory(), MovedClock()
    token = CLOCK.set(clock)
    filed = key_settings(folder, filed="acme/bob")
    settings = AuthSettings(
        auth="api_key",
        api_keys_file=filed.api_keys_file,
        internal_token=filed.internal_token,
        keys_poll_s=poll_s,
        keys_good_s=GOOD_S,
    )
    try:
        async with (
            asyncio.timeout(100),
            following_keys(settings, memory.read) as keys,
            open_authenticator(settings, keys, has_certificates=False) as gate,
        ):
            keys.listen(memory.looked.set)
            yield Service(memory, clock, keys, gate)
    finally:
        CLOCK.reset(token)


async def test_a_stored_key_works_at_once_next_to_those_of_the_file(tmp_path: Path) -> None:
    async with keyed_service(tmp_path, poll_s=3.0) as service:
        for n in range(5):
            service.memory.put(f"hrk_{n}", roles=["finance"])
        for n in range(5):
            found = await service.show(f"hrk_{n}")
            assert found == Identity("acme", "ada", scopes=frozenset({"ask"}))
            with acting_as(found):
                assert not [value for _, value in forward_identity() if value == found.key_id]
            assert found.roles == {"finance"}
            assert found.credential == f"api_key:{hashlib.sha256(f'hrk_{n}'.encode()).hexdigest()[:12]}"
        assert (await service.show("filed")).user == "bob"
        service.memory.put("hrk_new")
        assert (await service.show("hrk_new")).user == "ada"


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"revoked": True}, "revoked"), ({"disabled": True}, "disabled"), ({"expires_at": 1}, "expired")],
)
async def test_a_key_that_has_ended_is_refused_and_its_open_calls_end(
    tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    async with keyed_service(tmp_path) as service:
        service.memory.put("hrk_a")
        service.memory.put("hrk_other")
        other = await service.show("hrk_other")
        open_ = asyncio.create_task(service.stay(await service.show("hrk_a")))
        await service.next_look()
        service.memory.put("hrk_a", **fields)
        with pytest.raises(CredentialEnded, match=says):
            await open_
        with pytest.raises(CredentialEnded, match=says):
            await service.show("hrk_a")
        async with service.gate.ending_with_credential(other):
            await service.next_look()
        service.memory.put("hrk_a")
        await service.next_look()
        assert (await service.show("hrk_a")).user == "ada"


@pytest.mark.parametrize("fields", [{"roles": ["support"], "scopes": ["answer"]}, {"roles": ["finance", "support"]}])
async def test_a_key_that_loses_a_role_or_scope_ends_the_calls_it_opened(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with keyed_service(tmp_path) as service:
        service.memory.put("hrk_a", roles=["finance"], scopes=["answer"])
        before = await service.show("hrk_a")
        service.memory.put("hrk_a", roles=["finance", "support"], scopes=["answer"])
        await service.next_look()
        async with service.gate.ending_with_credential(before):  # one that gains something continues
            await service.next_look()
        calls = [asyncio.create_task(service.stay(await service.show("hrk_a"))) for _ in range(2)]
        await service.next_look()
        service.memory.put("hrk_a", **fields)
        for call in calls:
            with pytest.raises(CredentialEnded, match="fewer roles or scopes"):
                await call
        async with service.gate.ending_with_credential(await service.show("hrk_a")):
            await service.next_look()


async def test_a_key_expires_by_the_clock_without_a_change(tmp_path: Path) -> None:
    async with keyed_service(tmp_path) as service:
        service.memory.put("hrk_a", expires_at=service.clock.time_ns() // 1_000_000 + 3_600_000)
        open_ = asyncio.create_task(service.stay(await service.show("hrk_a")))
        await service.next_look()
        service.clock.ahead_s += 3601
        with pytest.raises(CredentialEnded, match="expired"):
            await open_


async def test_while_memory_is_unavailable_keys_stay_valid_for_a_time(tmp_path: Path) -> None:
    async with keyed_service(tmp_path) as service:
        for name in ("a", "b", "c"):
            service.memory.put(f"hrk_{name}")
        await service.show("hrk_a")
        service.memory.failure = Overloaded("memory is away")
        await service.next_look()
        service.clock.ahead_s += GOOD_S / 2
        assert (await service.show("hrk_a")).user == "ada"
        with pytest.raises(Overloaded):
            await service.show("hrk_new")
        service.clock.ahead_s += GOOD_S
        for text in ("hrk_a", "hrk_new"):
            with pytest.raises(Overloaded):
                await service.show(text)
        assert (await service.show("filed")).user == "bob"
        with pytest.raises(Unauthenticated):
            await service.show("of another form")
        del service.memory.revisions["id of hrk_b"]  # as in a store that was put back
        service.memory.failure = None
        await service.next_look()
        assert (await service.show("hrk_c")).user == "ada"
        with pytest.raises(Unauthenticated):
            await service.show("hrk_b")


async def test_unauthenticated_calls_cause_no_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_keys, "WAITING_MAX", 10)
    monkeypatch.setattr(stored_keys, "UNKNOWN_MAX", 5)
    async with keyed_service(tmp_path, poll_s=3.0) as service:
        service.memory.put("hrk_a")
        await service.show("hrk_a")
        before = service.memory.reads
        texts = [f"hrk_{n}" for n in range(30)]
        answers = await asyncio.gather(*(service.show(text) for text in texts), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unauthenticated] * 10 + [Overloaded] * 20
        assert service.memory.reads == before + 1
        for _ in range(100):
            with pytest.raises(Unauthenticated):
                await service.show("hrk_9")
        for text in ("", "no", "hrk", "x" * 5000):
            with pytest.raises(Unauthenticated):
                await service.show(text)
        assert (await service.show("hrk_a")).user == "ada"
        assert service.memory.reads == before + 1


async def test_a_key_has_a_number_of_calls_per_minute(tmp_path: Path) -> None:
    async with keyed_service(tmp_path) as service:
        service.memory.put("hrk_a", requests_per_minute=3)
        for _ in range(3):
            await service.show("hrk_a")
        with pytest.raises(QuotaExceeded, match="3 calls") as refused:
            await service.show("hrk_a")
        assert 0 < (refused.value.retry_after_s or 0) <= 20
        service.clock.ahead_s += 20
        await service.show("hrk_a")
        with pytest.raises(QuotaExceeded):
            await service.show("hrk_a")
        service.memory.put("hrk_a")
        await service.next_look()
        for _ in range(10):
            await service.show("hrk_a")
