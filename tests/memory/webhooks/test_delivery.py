"""Deliveries over HTTP to a receiver that fails, hangs or is killed: all of them, in order, and signed. On both
engines.
"""

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import standardwebhooks
from aiohttp import web

from services.memory.storage.engine import Engine
from services.memory.storage.records.webhooks import DEAD, DELIVERED, WAITING, LeasedDelivery, TryResult
from services.memory.webhooks.deliverer import CLAIM_MS
from services.memory.webhooks.store import warn_of_budget
from services.runtime.clock import now_ms
from tests.support.memory.webhooks import (
    Open,
    Writer,
    create,
    deliver,
    list_deliveries,
    send_to,
    store_of,
    wait_for_states,
)
from tests.support.memory.writing import new_id
from tests.support.webhook_receiver import Post, Receiver

pytestmark = pytest.mark.engines


def verify(post: Post, secret: str) -> Any:
    """Verify a post with the reference implementation, as a receiver does. Raises WebhookVerificationError."""
    return standardwebhooks.Webhook(secret).verify(post.body, post.headers)


async def make_due(engine: Engine) -> None:
    """Make the waiting deliveries due now."""
    for webhook in await engine.records.webhooks.list_all():
        for delivery in await list_deliveries(engine, webhook, WAITING):
            await engine.records.webhooks.record(delivery, TryResult(WAITING, now_ms(), failure="again"))
        await engine.records.webhooks.put(
            msgspec.structs.replace(webhook, version=webhook.version + 1), webhook.version
        )  # wakes the deliverer


async def claim(engine: Engine, now: int | None = None) -> list[LeasedDelivery]:
    await engine.index.list_chats()  # waits for pending writes
    now = now_ms() if now is None else now
    return await engine.records.webhooks.claim(now, now + CLAIM_MS, 4, 100, (), defaultdict(lambda: 100))


@pytest.mark.engines("encrypted", "encrypted postgres")
async def test_an_ended_run_is_sent_as_a_signed_cloud_event(engine_in_use: Engine, receiver: Receiver) -> None:
    webhook, secret = await create(engine_in_use, receiver)
    async with deliver(engine_in_use, receiver):
        chat_id = await Writer(engine_in_use).run()
        [post] = await receiver.wait_for(1)
        [delivery] = await wait_for_states(engine_in_use, webhook, DELIVERED)
    event = verify(post, secret)
    assert post.headers["content-type"].startswith("application/cloudevents+json")
    assert (event["specversion"], event["type"], event["subject"]) == ("1.0", "headrace.run.ended", chat_id)
    assert (event["source"], event["id"]) == ("/headrace/tenants/default", post.event_id)
    data = event["data"]
    assert (data["chatId"], data["agentKey"], data["state"], data["finishReason"]) == (
        chat_id,
        "guide",
        "completed",
        "stop",
    )
    assert data["usage"] == {"inputTokens": 10, "outputTokens": 4}
    assert data["startedAt"] <= data["endedAt"] == event["time"]
    assert b"secret" not in post.body
    assert (delivery.tries, delivery.status, delivery.failure) == (1, 204, "")
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verify(replace(post, body=post.body.replace(b"guide", b"other")), secret)


async def test_a_gate_is_announced_when_it_opens_reminds_or_is_about_to_expire_unless_it_closed(
    engine_in_use: Engine, receiver: Receiver
) -> None:
    await create(engine_in_use, receiver)
    writer = Writer(engine_in_use)
    chat_id, run_id = await writer.begin()
    async with deliver(engine_in_use, receiver):
        await writer.open_gate(chat_id, run_id, "answered", 1500)
        await writer.close_gate(chat_id, run_id, "answered")
        await writer.open_gate(chat_id, run_id, "left", 2000)
        await receiver.wait_for(3)
        await writer.open_gate(chat_id, run_id, "cancelled")
        await writer.take_step(chat_id, run_id, "cancelled", "reminded")
        await writer.take_step(chat_id, run_id, "cancelled", "delegated", "user:bob")
        await writer.take_step(chat_id, run_id, "cancelled", "escalated", "role:board")
        await writer.end(chat_id, run_id, "cancelled")
        posts = await receiver.wait_for(7)
        # Events that have not arrived by now were withdrawn: nothing is left to be delivered later.
        assert await engine_in_use.records.webhooks.find_next(now_ms() + 10 * CLAIM_MS) == 0
    events = [(post.event["type"].removeprefix("headrace."), post.event["data"]) for post in posts]
    assert [(name, data.get("gateId"), data.get("to")) for name, data in events] == [
        ("gate.opened", "answered", None),
        ("gate.opened", "left", None),
        ("gate.expiring", "left", None),
        ("gate.opened", "cancelled", None),
        ("gate.reminded", "cancelled", None),
        ("gate.escalated", "cancelled", ["role:board"]),
        ("run.ended", None, None),
    ]
    assert all(b"secret" not in post.body for post in posts)
    escalated = events[5][1]
    assert (escalated["chatId"], escalated["runId"], escalated["agentKey"]) == (chat_id, run_id, "guide")


async def test_only_subscribed_events_are_delivered(engine_in_use: Engine, receiver: Receiver) -> None:
    for fields in ({"types": ["headrace.gate.opened"]}, {"agent_keys": ["clerk", "ada_"]}, {"paused": True}):
        await create(engine_in_use, receiver, **fields)
    writer = Writer(engine_in_use)
    for agent_key in ("guide", "adam", "cler"):
        await writer.run(agent_key=agent_key)
    chat_id = await writer.run(agent_key="clerk")
    leased = await claim(engine_in_use)
    assert [found.delivery.subject for found in leased] == [chat_id]


async def test_a_failed_delivery_is_retried_with_the_same_id_until_it_is_accepted(
    engine_in_use: Engine, receiver: Receiver
) -> None:
    answers = iter([500, 302, 429])
    receiver.answer = lambda _: next(answers, 200)
    webhook, secret = await create(engine_in_use, receiver)
    async with deliver(engine_in_use, receiver):
        await Writer(engine_in_use).run()
        for count in (1, 2, 3):
            await receiver.wait_for(count)
            async with asyncio.timeout(60):
                while (await list_deliveries(engine_in_use, webhook))[0].failure == "again":
                    await asyncio.sleep(0.02)
                while not (await list_deliveries(engine_in_use, webhook))[0].failure:
                    await asyncio.sleep(0.02)
            await make_due(engine_in_use)
        posts = await receiver.wait_for(4)
        [delivery] = await wait_for_states(engine_in_use, webhook, DELIVERED)
    assert {post.event_id for post in posts} == {delivery.event_id}
    assert len({post.body for post in posts}) == 1
    assert [verify(post, secret)["id"] for post in posts] == [delivery.event_id] * 4


async def test_the_events_of_a_subject_are_sent_in_order_and_do_not_delay_others(
    engine_in_use: Engine, receiver: Receiver
) -> None:
    webhook, _ = await create(engine_in_use, receiver)
    writer, stuck = Writer(engine_in_use), new_id()
    is_up = False
    receiver.answer = lambda post: 204 if is_up or post.event["subject"] != stuck else 503
    async with deliver(engine_in_use, receiver):
        for _ in range(3):
            await writer.run(stuck)
        others = [await writer.run() for _ in range(6)]
        await wait_for_states(engine_in_use, webhook, *[DELIVERED] * 6, *[WAITING] * 3)
        refused = [post for post in receiver.posts if post.event["subject"] == stuck]
        assert len({post.event_id for post in refused}) == 1, "those behind it wait"
        assert {post.event["subject"] for post in receiver.posts} == {stuck, *others}
        is_up, count = True, len(receiver.posts)
        await make_due(engine_in_use)
        await wait_for_states(engine_in_use, webhook, *[DELIVERED] * 9)
    times = [post.event["time"] for post in receiver.posts[count:]]
    assert len(times) == 3
    assert times == sorted(times)


async def test_a_hanging_receiver_does_not_delay_others(engine_in_use: Engine, receiver: Receiver) -> None:
    go_on = asyncio.Event()

    async def hang() -> int:
        await go_on.wait()
        return 200

    receiver.answer = lambda post: hang() if "slow" in post.event["data"]["agentKey"] else 204
    slow, _ = await create(engine_in_use, receiver, agent_keys=["slow"])
    quick, _ = await create(engine_in_use, receiver, agent_keys=["quick"])
    async with deliver(engine_in_use, receiver):
        for _ in range(20):
            await Writer(engine_in_use).run(agent_key="slow")
        await receiver.wait_for(4)
        await Writer(engine_in_use).run(agent_key="quick")
        await wait_for_states(engine_in_use, quick, DELIVERED)
        assert 4 <= sum(post.event["data"]["agentKey"] == "slow" for post in receiver.posts) <= 7
        go_on.set()
        await wait_for_states(engine_in_use, slow, *[DELIVERED] * 20)


async def test_a_response_without_an_end_counts_by_its_status(engine_in_use: Engine, receiver: Receiver) -> None:
    async def trickle(request: Any = None) -> web.StreamResponse:
        async def write() -> Any:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.01)

        return web.Response(status=200, body=write())

    receiver.answer = lambda _: trickle()
    webhook, _ = await create(engine_in_use, receiver)
    async with deliver(engine_in_use, receiver):
        await Writer(engine_in_use).run()
        [delivery] = await wait_for_states(engine_in_use, webhook, DELIVERED)
    assert delivery.tries == 1


async def test_a_delivery_that_was_not_recorded_is_repeated(open_store: Open, receiver: Receiver) -> None:
    async with open_store() as engine:
        webhook, _ = await create(engine, receiver)
        await Writer(engine).run()
        [killed] = await claim(engine)
        assert await claim(engine) == [], "nobody else has it"
        headers = {"webhook-id": killed.delivery.event_id}
        await send_to(receiver)(webhook.url, headers, killed.delivery.payload.encode())
    async with open_store() as engine:  # the process that has claimed it is gone
        later = now_ms() + CLAIM_MS
        [found] = await claim(engine, later)
        assert (found.delivery.event_id, found.delivery.tries) == (killed.delivery.event_id, 2)
        late_result = TryResult(WAITING, later, failure="too late")
        assert not await engine.records.webhooks.record(killed.delivery, late_result), "its time is over"
        assert await engine.records.webhooks.record(found.delivery, TryResult(DELIVERED, later, 200))
        assert await claim(engine, later + CLAIM_MS) == []


async def test_an_event_survives_the_process_that_stored_its_line(open_store: Open, receiver: Receiver) -> None:
    async with open_store() as engine:
        webhook, secret = await create(engine, receiver)
        chat_id = await Writer(engine).run()
    async with open_store() as engine, deliver(engine, receiver):
        [post] = await receiver.wait_for(1)
        await wait_for_states(engine, webhook, DELIVERED)
    assert verify(post, secret)["subject"] == chat_id


async def test_two_secrets_sign_during_a_rotation(engine_in_use: Engine, receiver: Receiver) -> None:
    webhook, old = await create(engine_in_use, receiver)
    _, new = await store_of(engine_in_use).rotate(webhook.webhook_id)
    writer = Writer(engine_in_use)
    async with deliver(engine_in_use, receiver):
        await writer.run()
        [first_post] = await receiver.wait_for(1)
        assert verify(first_post, old) == verify(first_post, new)
        _, newest = await store_of(engine_in_use).rotate(webhook.webhook_id, keep_s=0)
        await writer.run()
        second_post = (await receiver.wait_for(2))[1]
        await wait_for_states(engine_in_use, webhook, DELIVERED, DELIVERED)
    verify(second_post, newest)
    for expired_secret in (old, new):
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            verify(second_post, expired_secret)


async def test_dead_letters_are_listed_and_can_be_replayed(engine_in_use: Engine, receiver: Receiver) -> None:
    webhook, _ = await create(engine_in_use, receiver)
    store, chat_id = store_of(engine_in_use), new_id()
    for _ in range(3):
        await Writer(engine_in_use).run(chat_id)
    dead_ids: list[str] = []
    for _ in range(3):
        [found] = await claim(engine_in_use)
        dead_ids.append(found.delivery.event_id)
        assert await engine_in_use.records.webhooks.record(
            found.delivery, TryResult(DEAD, now_ms(), 500, "answered with 500")
        )
    dead, _ = await store.list_deliveries(webhook.webhook_id, DEAD, 2, "")
    last_page, token = await store.list_deliveries(
        webhook.webhook_id, DEAD, 2, (await store.list_deliveries(webhook.webhook_id, DEAD, 2, ""))[1]
    )
    assert ({delivery.event_id for delivery in (*dead, *last_page)}, token) == (set(dead_ids), "")
    assert dead[0].failure == "answered with 500"
    assert (await engine_in_use.records.webhooks.count_backlog()).dead == 3
    async with deliver(engine_in_use, receiver):
        assert await store.replay(webhook.webhook_id, dead_ids[1:2]) == 1
        await receiver.wait_for(1)
        await wait_for_states(engine_in_use, webhook, DELIVERED, DEAD, DEAD)
        assert await store.replay(webhook.webhook_id, []) == 2
        await wait_for_states(engine_in_use, webhook, DELIVERED, DELIVERED, DELIVERED)
        assert await store.replay(webhook.webhook_id, dead_ids[:1]) == 1
        posts = await receiver.wait_for(4)
    assert [post.event_id for post in posts] == [dead_ids[1], dead_ids[0], dead_ids[2], dead_ids[0]]


async def test_a_ping_goes_to_one_webhook_and_a_budget_warning_is_sent_once(
    engine_in_use: Engine, receiver: Receiver
) -> None:
    pinged, secret = await create(engine_in_use, receiver, types=["headrace.gate.opened"])
    warned, _ = await create(engine_in_use, receiver)
    async with deliver(engine_in_use, receiver):
        sent = await store_of(engine_in_use).ping(pinged.webhook_id)
        [delivery] = await wait_for_states(engine_in_use, pinged, DELIVERED)
        for _ in range(2):
            await warn_of_budget(engine_in_use.records.webhooks, "default", "team", "2026-11", 0.8, {"limitUsd": 50})
        await wait_for_states(engine_in_use, warned, DELIVERED)
    assert delivery.event_id == sent.event_id
    ping, warning = [verify(post, secret) if n == 0 else post.event for n, post in enumerate(receiver.posts)]
    assert (ping["type"], warning["type"]) == ("headrace.ping", "headrace.budget.warning")
    assert warning["data"] == {"budgetId": "team", "period": "2026-11", "share": 0.8, "limitUsd": 50}
    assert warning["subject"] == "budget/team"


async def test_a_fork_sends_no_events(engine_in_use: Engine, receiver: Receiver) -> None:
    await create(engine_in_use, receiver)
    writer = Writer(engine_in_use)
    chat_id = await writer.run()
    [found] = await claim(engine_in_use)
    await engine_in_use.records.webhooks.record(found.delivery, TryResult(DELIVERED, now_ms(), 200))
    chat = await engine_in_use.chats.load(chat_id)
    await engine_in_use.chats.fork(chat_id, len(chat.log), chat.info.owner, new_id())
    await engine_in_use.index.list_chats()
    assert await claim(engine_in_use, now_ms() + 10 * CLAIM_MS) == []


async def test_deliveries_are_deleted_with_their_webhook(engine_in_use: Engine, receiver: Receiver) -> None:
    webhook, _ = await create(engine_in_use, receiver)
    await Writer(engine_in_use).run()
    assert (await engine_in_use.records.webhooks.count_backlog()).waiting <= 1
    await engine_in_use.index.list_chats()
    assert (await engine_in_use.records.webhooks.count_backlog()).waiting == 1
    await store_of(engine_in_use).delete(webhook.webhook_id)
    backlog = await engine_in_use.records.webhooks.count_backlog()
    assert (backlog.waiting, backlog.oldest_at) == (0, 0)


async def test_closed_deliveries_are_forgotten_after_some_time(engine_in_use: Engine, receiver: Receiver) -> None:
    webhook, _ = await create(engine_in_use, receiver)
    await Writer(engine_in_use).run()
    [found] = await claim(engine_in_use)
    await engine_in_use.records.webhooks.record(found.delivery, TryResult(DELIVERED, now_ms(), 200))
    await engine_in_use.records.webhooks.forget(now_ms() - 1000)
    assert len(await list_deliveries(engine_in_use, webhook)) == 1
    await engine_in_use.records.webhooks.forget(now_ms() + 1000)
    assert await list_deliveries(engine_in_use, webhook) == []
