"""Limits on what a tenant's webhooks may use: concurrent tries, rows, and the cost of a long backlog."""

import asyncio
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import Overloaded, QuotaExceeded
from services.memory.storage.engine import Engine
from services.memory.storage.event_rows import PING, RUN_ENDED, make_event
from services.memory.storage.files.outbox import NAME
from services.memory.storage.records.deliveries import Webhooks
from services.memory.storage.records.webhooks import TryResult
from services.memory.webhooks.deliverer import TENANT_MAX, delivering
from services.memory.webhooks.sender import Answer
from services.memory.webhooks.store import WEBHOOKS_MAX, WebhookStore
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from services.runtime.net.allow_list import AllowList
from tests.support.memory.webhooks import Writer, create, deliver, list_deliveries, store_of
from tests.support.memory.writing import new_id
from tests.support.webhook_receiver import Receiver

HOOK = "https://hooks.example/"
MANY = 20_000


@pytest.mark.engines
async def test_hanging_receivers_of_one_tenant_do_not_delay_others(engine_in_use: Engine) -> None:
    store, delivered, hanging = (
        WebhookStore(engine_in_use.records.webhooks, AllowList()),
        asyncio.Event(),
        Counter[str](),
    )

    async def send(url: str, headers: dict[str, str], body: bytes) -> Answer:
        if url == HOOK:
            delivered.set()
            return Answer(200)
        hanging[url] += 1
        try:
            await asyncio.Event().wait()
        finally:
            hanging[url] -= 1
        raise AssertionError

    with acting_as(Identity("greedy", "gil", scopes=ALL_SCOPES)):
        for n in range(WEBHOOKS_MAX):
            await store.create(f"https://{n}.example/")
    await store.create(HOOK)
    for n in range(8):
        await engine_in_use.records.webhooks.add_event(make_event("greedy", RUN_ENDED, str(n), new_id(), now_ms(), {}))
    async with asyncio.timeout(100), delivering(engine_in_use.records.webhooks, send, look_s=0.05):
        while hanging.total() < TENANT_MAX:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # time for more
        await engine_in_use.records.webhooks.add_event(make_event("default", RUN_ENDED, "one", new_id(), now_ms(), {}))
        await delivered.wait()
        assert hanging.total() == TENANT_MAX


@pytest.mark.engines
async def test_an_event_that_becomes_due_during_a_pause_is_not_sent_later(
    engine_in_use: Engine, receiver: Receiver
) -> None:
    webhook, _ = await create(engine_in_use, receiver, types=["headrace.gate.expiring"])
    writer, store = Writer(engine_in_use), store_of(engine_in_use)
    chat_id, run_id = await writer.begin()
    await writer.open_gate(chat_id, run_id, "early", wait_ms=1_000)
    await writer.open_gate(chat_id, run_id, "late", wait_ms=10_000)
    await engine_in_use.index.list_chats()
    await store.update(webhook.webhook_id, {"paused": True})
    async with deliver(engine_in_use, receiver):
        await asyncio.sleep(1.2)
        await store.update(webhook.webhook_id, {"paused": False})
        await receiver.wait_for(1)
    assert [post.event["data"]["gateId"] for post in receiver.posts] == ["late"]


@pytest.mark.engines
async def test_concurrent_requests_do_not_exceed_a_tenants_number_of_webhooks(engine_in_use: Engine) -> None:
    store = WebhookStore(engine_in_use.records.webhooks, AllowList())
    results = await asyncio.gather(*(store.create(HOOK) for _ in range(WEBHOOKS_MAX + 10)), return_exceptions=True)
    assert {type(result) for result in results if not isinstance(result, tuple)} == {QuotaExceeded}
    stored_ids = {webhook.webhook_id for webhook in await store.list_own()}
    assert stored_ids == {result[0].webhook_id for result in results if isinstance(result, tuple)}
    assert len(stored_ids) <= WEBHOOKS_MAX


async def test_a_full_webhook_is_not_pinged(engine_in_use: Engine, folder: Path, receiver: Receiver) -> None:
    webhook, _ = await create(engine_in_use, receiver)
    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as database:
        database.execute("UPDATE webhooks SET is_full = 1")
    with pytest.raises(QuotaExceeded):
        await store_of(engine_in_use).ping(webhook.webhook_id)
    await engine_in_use.records.webhooks.count_backlog()  # nothing waits, so it is no longer full
    assert (await store_of(engine_in_use).ping(webhook.webhook_id)).type == PING
    assert len(await list_deliveries(engine_in_use, webhook)) == 1


def run_statement(database: sqlite3.Connection, text: str, values: Sequence[Any]) -> list[Sequence[Any]]:
    """Run a statement whose values are numbered, as of a database's driver, on the file itself."""
    return database.execute(re.sub(r"\$(\d+)", r"?\1", text), tuple(values)).fetchall()


def as_sql(run: Any) -> Any:
    return SimpleNamespace(run=run)


async def test_claiming_and_recording_cost_the_same_however_many_deliveries_wait(
    engine_in_use: Engine, folder: Path, receiver: Receiver
) -> None:
    """A receiver that is dead for a day must not cause scans of the file, which appends write to as well."""
    webhook, _ = await create(engine_in_use, receiver)
    await store_of(engine_in_use).ping(webhook.webhook_id)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 100

    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as database:

        async def run(*statements: tuple[str, Sequence[Any]]) -> list[list[Sequence[Any]]]:
            return [run_statement(database, *statement) for statement in statements]

        columns = [row[1] for row in database.execute("PRAGMA table_info(deliveries)")]
        row = dict(zip(columns, database.execute("SELECT * FROM deliveries").fetchone(), strict=True))
        rows = [[*(row | {"event_id": f"{n}", "subject": f"{n}", "place": n + 2}).values()] for n in range(MANY)]
        database.executemany(f"INSERT INTO deliveries VALUES ({', '.join('?' * len(columns))})", rows)
        database.set_progress_handler(count, 100)
        webhooks, now = Webhooks(as_sql(run), "1"), now_ms()
        claims = await webhooks.claim(now, now + 60_000, 4, 100, (), defaultdict(lambda: 100))
        assert len(claims) == 4
        await webhooks.record(claims[0].delivery, TryResult("waiting", now + 5_000, 503, "answered with 503"))
        assert await webhooks.find_next(now)
    assert steps < MANY / 4


async def test_a_claim_that_fails_halfway_uses_up_no_place_of_its_tenant(
    engine_in_use: Engine, folder: Path, receiver: Receiver
) -> None:
    for _ in range(2):
        webhook, _ = await create(engine_in_use, receiver)
        await store_of(engine_in_use).ping(webhook.webhook_id)
    claims = 0

    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as database:

        async def run(*statements: tuple[str, Sequence[Any]]) -> list[list[Sequence[Any]]]:
            nonlocal claims
            claims += sum("tries = tries + 1" in text for text, _ in statements)
            if claims > 1:
                raise Overloaded("the disk refuses")
            return [run_statement(database, *statement) for statement in statements]

        free_places, now = defaultdict[str, int](lambda: 2), now_ms()
        with pytest.raises(Overloaded):
            await Webhooks(as_sql(run), "1").claim(now, now + 60_000, 4, 100, (), free_places)
    assert free_places["default"] == 2
