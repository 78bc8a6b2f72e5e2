"""Retries over a day, and deliverers that are killed at any moment, on a simulated clock (trials/simulation)."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import pytest

from services.memory.storage.records.webhooks import DEAD, DELIVERED, Delivery
from services.memory.webhooks.deliverer import Deliverer, Send, delivering
from services.memory.webhooks.sender import Answer
from services.memory.webhooks.store import WebhookStore
from services.runtime.clock import CLOCK, now_ms
from services.runtime.net.allow_list import AllowList
from services.runtime.randomness import RANDOM
from tests.support.memory.engines import Files, open_engine
from tests.support.memory.webhooks import Writer, list_deliveries
from tests.support.memory.writing import new_id
from trials.simulation.world.loop import SimulatedLoop
from trials.simulation.world.processes import SimulatedClock

T = TypeVar("T")

HOUR_S, DAY_S = 3600, 86_400
HOOK = "https://hooks.example/"


def simulate(seed: str, work: Callable[[], Awaitable[T]]) -> T:
    loop = SimulatedLoop(Random(f"{seed}/loop"))
    context = copy_context()
    context.run(CLOCK.set, SimulatedClock(loop, 0))
    context.run(RANDOM.set, Random(f"{seed}/ids"))

    async def main() -> T:
        return await work()

    try:
        return context.run(loop.run_until_complete, main())
    finally:
        loop.close()


async def deliver_one(folder: Path, send: Send, pass_s: float) -> tuple[Delivery, list[int]]:
    """Return the delivery of one run after `pass_s`, and the times of its tries, in seconds after its event."""
    tries: list[int] = []
    ids: set[str] = set()

    async def noting(url: str, headers: dict[str, str], body: bytes) -> Answer:
        tries.append(now_ms())
        ids.add(headers["webhook-id"])
        return await send(url, headers, body)

    async with open_engine(Files(folder)) as engine:
        webhook, _ = await WebhookStore(engine.records.webhooks, AllowList()).create(HOOK)
        async with delivering(engine.records.webhooks, noting):
            await Writer(engine).run()
            await asyncio.sleep(pass_s)
        [delivery] = await list_deliveries(engine, webhook)
    assert ids == {delivery.event_id}
    return delivery, [(at - delivery.began_at) // 1000 for at in tries]


def test_a_receiver_that_is_back_within_a_day_gets_the_missed_deliveries(tmp_path: Path) -> None:
    async def send(url: str, headers: dict[str, str], body: bytes) -> Answer:
        await asyncio.sleep(1)
        return Answer(200) if now_ms() >= back_at[0] else Answer(503, "answered with 503")

    async def work() -> tuple[Delivery, list[int]]:
        back_at.append(now_ms() + 22 * HOUR_S * 1000)
        return await deliver_one(tmp_path / "chats", send, DAY_S)

    back_at: list[int] = []
    delivery, tries = simulate("back", work)
    assert delivery.state == DELIVERED
    assert tries[:2] == [0, tries[1]]
    assert 4 <= tries[1] <= 8
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert max(gaps) <= 1.25 * HOUR_S, "it is found again soon"
    assert 25 <= len(tries) <= 50, "and not bothered"


def test_an_event_that_is_never_accepted_is_a_dead_letter_after_a_day(tmp_path: Path) -> None:
    async def refuse(url: str, headers: dict[str, str], body: bytes) -> Answer:
        return Answer(failure="the server cannot be reached, or hung up")

    delivery, tries = simulate("never", lambda: deliver_one(tmp_path / "chats", refuse, 3 * DAY_S))
    assert (delivery.state, delivery.failure) == (DEAD, "the server cannot be reached, or hung up")
    assert DAY_S <= tries[-1] <= DAY_S + 60
    assert delivery.closed_at // 1000 == delivery.began_at // 1000 + tries[-1]


@pytest.mark.parametrize("seed", range(12))
def test_killing_any_deliverer_at_any_moment_loses_and_reorders_nothing(seed: int, tmp_path: Path) -> None:
    received: dict[str, list[str]] = defaultdict(list)
    """Events by subject, in the order in which the receiver first got them."""

    async def work() -> dict[str, list[str]]:
        chance = Random(f"{seed}/receiver")

        async def send(url: str, headers: dict[str, str], body: bytes) -> Answer:
            await asyncio.sleep(chance.uniform(0, 15))
            if chance.random() < 0.3:
                return Answer(500, "answered with 500")
            event = msgspec.json.decode(body)
            if event["id"] not in received[event["subject"]]:
                received[event["subject"]].append(event["id"])
            await asyncio.sleep(
                chance.uniform(0, 15)
            )  # the receiver has it, but the deliverer may be killed before it learns so
            return Answer(0, "no answer within 15 s") if chance.random() < 0.2 else Answer(200)

        async with open_engine(Files(tmp_path / "chats")) as engine:
            webhook, _ = await WebhookStore(engine.records.webhooks, AllowList()).create(HOOK)
            writer, chats = Writer(engine), [new_id() for _ in range(3)]
            for turn in range(24):
                deliverers = [asyncio.create_task(Deliverer(engine.records.webhooks, send).run()) for _ in range(2)]
                if turn < 8:
                    await writer.run(chance.choice(chats))
                await asyncio.sleep(chance.uniform(0, 120))
                for deliverer in deliverers:
                    deliverer.cancel()
                await asyncio.wait(deliverers)
            with suppress(TimeoutError):
                async with asyncio.timeout(DAY_S), delivering(engine.records.webhooks, send):
                    while any(row.state != DELIVERED for row in await list_deliveries(engine, webhook)):
                        await asyncio.sleep(60)
            rows = await list_deliveries(engine, webhook)
        assert {row.state for row in rows} == {DELIVERED}
        assert len(rows) == 8
        expected: dict[str, list[str]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row.occurred_at):
            expected[row.subject].append(row.event_id)
        return expected

    assert simulate(str(seed), work) == received
