"""What API keys use of their limits, over all services of a store, at the same time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from headrace.errors import NotFound, QuotaExceeded
from headrace.streams import rpc_errors
from headrace.v1 import keys_pb2, memory_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.rpc.call_ids import forward_metadata
from tests.support.memory.engines import Files, Kept
from tests.support.memory.writing import Memory, new_id, query_line, run_line

pytestmark = pytest.mark.engines

ADMIN = Identity("acme", "op", scopes=ALL_SCOPES)
CAT = Identity("acme", "cat", credential="api_key:0123456789ab", scopes=ALL_SCOPES)
OTHER = replace(CAT, credential="api_key:ba9876543210")
MINUTE_MS = 60_000


class Stage:
    """One service of a folder, or three of a database, with one clock."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000
        self.services: list[Memory] = []

    async def open(self, kept: Kept, stack: AsyncExitStack) -> Stage:
        for _ in range(1 if isinstance(kept, Files) else 3):
            self.services.append(await stack.enter_async_context(kept.memory(clock=lambda: self.now)))
        return self

    async def make_key(self, requests_per_minute: int = 0) -> str:
        with acting_as(ADMIN), rpc_errors():
            request = keys_pb2.CreateKeyRequest(name="of the test", user="cat", scopes=["ask"])
            if requests_per_minute:
                request.requests_per_minute = requests_per_minute
            return (await self.services[0].keys.CreateKey(request, metadata=forward_metadata())).key.key_id

    async def take(self, key_id: str, wanted: int, service: int = 0) -> keys_pb2.TakeKeyCallsResponse:
        memory = self.services[service % len(self.services)]
        with acting_as(None), rpc_errors():
            request = keys_pb2.TakeKeyCallsRequest(key_id=key_id, wanted=wanted)
            return await memory.keys.TakeKeyCalls(request, metadata=forward_metadata())

    async def begin(self, who: Identity, most: int, service: int = 0, **ids: str) -> tuple[str, str]:
        """Begin a run as an orchestrator does, and return its chat and id."""
        memory = self.services[service % len(self.services)]
        chat_id, run_id = ids.get("chat_id") or new_id(), ids.get("run_id") or new_id()
        append = memory_pb2.AppendRequest(chat_id=chat_id, run_id=run_id, request_id=run_id, key_runs_max=most)
        append.lines.append(query_line("hello"))
        with acting_as(who), rpc_errors():
            await memory.stub.BeginRun(memory_pb2.BeginRunRequest(append=append), metadata=forward_metadata())
        return chat_id, run_id

    async def end(self, who: Identity, chat_id: str, run_id: str) -> None:
        with acting_as(who):
            await self.services[0].append(chat_id, run_id, run_line())


async def test_all_services_together_give_a_keys_calls_and_no_more(kept: Kept) -> None:
    async with asyncio.timeout(100), AsyncExitStack() as stack:
        stage = await Stage().open(kept, stack)
        key_id = await stage.make_key(requests_per_minute=100)
        taken = await asyncio.gather(*(stage.take(key_id, 7, number) for number in range(30)))
        assert sum(one.granted for one in taken) == 100
        refused = [one for one in taken if not one.granted]
        assert {(one.retry_after_ms, one.full_in_ms) for one in refused} == {(600, MINUTE_MS)}
        stage.now += 600
        assert [(await stage.take(key_id, 7, number)).granted for number in range(3)] == [1, 0, 0]
        stage.now += MINUTE_MS
        assert (await stage.take(key_id, 1_000)).granted == 100, "never more than a minute's"
        unlimited = await stage.make_key()
        for nobodys in (unlimited, new_id()):
            with pytest.raises(NotFound):
                await stage.take(nobodys, 1)


async def test_a_service_whose_clock_is_behind_gives_no_calls_and_takes_none_back(kept: Kept) -> None:
    async with AsyncExitStack() as stack:
        stage = await Stage().open(kept, stack)
        key_id = await stage.make_key(6)
        assert (await stage.take(key_id, 10)).granted == 6
        stage.now -= 5_000
        behind = await stage.take(key_id, 10, service=1)
        assert (behind.granted, behind.retry_after_ms, behind.full_in_ms) == (0, 15_000, MINUTE_MS + 5_000)
        stage.now += 5_000
        assert (await stage.take(key_id, 10)).granted == 0


async def test_all_services_together_begin_a_keys_runs_and_no_more(kept: Kept) -> None:
    async with asyncio.timeout(100), AsyncExitStack() as stack:
        stage = await Stage().open(kept, stack)
        begun = await asyncio.gather(*(stage.begin(CAT, 3, number) for number in range(12)), return_exceptions=True)
        runs = [one for one in begun if isinstance(one, tuple)]
        refused = [one for one in begun if isinstance(one, QuotaExceeded)]
        assert (len(runs), len(refused)) == (3, 9)
        assert "3 live runs already" in refused[0].message
        await stage.begin(OTHER, 3)
        await stage.begin(replace(CAT, credential=""), 0)
        await stage.begin(CAT, 3, chat_id=runs[0][0], run_id=runs[0][1])  # a repeated one is answered as at first
        await stage.end(CAT, *runs[0])
        runs.append(await stage.begin(CAT, 3, 1))
        with pytest.raises(QuotaExceeded):
            await stage.begin(CAT, 3, 2)


async def test_a_run_that_was_refused_for_another_reason_keeps_no_place(kept: Kept) -> None:
    async with asyncio.timeout(100), AsyncExitStack() as stack:
        stage = await Stage().open(kept, stack)
        theirs, _ = await stage.begin(replace(CAT, user="dan", credential="api_key:dddddddddddd"), 5)
        for _ in range(3):
            with pytest.raises(NotFound):
                await stage.begin(CAT, 1, chat_id=theirs)
        await stage.begin(CAT, 1)
