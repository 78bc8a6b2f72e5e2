"""Posts of other systems to schedules: signatures, repetitions, limits and results, on both engines.

The posts are signed by the library of Standard Webhooks.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks

from headrace.errors import InvalidRequest, NotFound, QueueFull, Unauthenticated
from headrace.v1 import schedule_pb2
from services.memory.schedules.posts import PAYLOAD_BYTES_MAX, POSTS_MAX, TAKEN_MAX, TOLERANCE_S
from services.runtime.auth.identity import acting_as
from tests.support.memory.engines import Serve
from tests.support.memory.schedules import (
    ADA,
    BOB,
    MINUTE,
    START,
    Clock,
    create,
    get,
    list_due,
    record,
    take_due,
    update,
)
from tests.support.memory.writing import Memory, new_id

pytestmark = pytest.mark.engines

BODY = '{"ticket":7}'
NO_SECRET = "whsec_" + "A" * 43 + "="


async def make_secret(memory: Memory, schedule_id: str, **fields: Any) -> str:
    return (await memory.call("RotateScheduleSecret", schedule_id=schedule_id, **fields)).secret


async def make_schedule(memory: Memory, **fields: Any) -> tuple[str, str]:
    """Make a schedule that accepts posts; return its id and its secret."""
    schedule = await create(memory, on_webhook=True, **fields)
    return schedule.schedule_id, await make_secret(memory, schedule.schedule_id)


def sign(secret: str, event_id: str, body: str, time_ms: int) -> dict[str, Any]:
    """Return the fields of a signed post."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    signature = standardwebhooks.Webhook(secret).sign(event_id, moment, body)
    return {"webhook_id": event_id, "timestamp": str(time_ms // 1000), "signature": signature, "payload": body.encode()}


async def take_next(memory: Memory, clock: Clock) -> schedule_pb2.DueSchedule:
    """Take what is due a moment later: posts of one moment are some milliseconds apart."""
    return await take_due(memory, clock, clock.now + 100)


async def receive(memory: Memory, schedule_id: str, fields: dict[str, Any]) -> str:
    return (await memory.call_as(None, "ReceiveWebhook", schedule_id=schedule_id, **fields)).status


async def post(
    memory: Memory, schedule_id: str, secret: str, event_id: str = "e1", body: str = BODY, *, now: int = START
) -> str:
    return await receive(memory, schedule_id, sign(secret, event_id, body, now))


@pytest.mark.engines("postgres")
async def test_a_post_is_due_at_once_and_keeps_its_place_over_a_restart(serve: Serve, clock: Clock) -> None:
    async with serve(clock=clock) as memory:
        with acting_as(ADA):
            schedule_id, secret = await make_schedule(memory)
        assert (await list_due(memory)) == schedule_pb2.ListDueSchedulesResponse(), "it has no time of its own"
        assert [await post(memory, schedule_id, secret, name) for name in ("e1", "e2", "e1")] == [
            "accepted",
            "accepted",
            "duplicate",
        ]
    async with serve(clock=clock) as memory:
        for name, waiting in ("e1", 2), ("e2", 1):
            due = await take_next(memory, clock)
            assert (due.tenant, due.user, due.post.webhook_id, due.post.payload) == ("acme", "ada", name, BODY)
            with acting_as(ADA):
                assert (await get(memory, schedule_id)).posts_waiting == waiting
            await record(memory, due, run_id=f"run of {name}")
        assert not (await list_due(memory)).due
        assert await post(memory, schedule_id, secret, "e2") == "duplicate", "its run has begun"
        with acting_as(ADA):
            firings = (await get(memory, schedule_id)).firings
    assert [(firing.webhook_id, firing.run_id, firing.outcome) for firing in firings] == [
        ("e2", "run of e2", "started"),
        ("e1", "run of e1", "started"),
    ]


async def test_every_invalid_post_is_refused_with_the_same_message(memory: Memory, clock: Clock) -> None:
    schedule_id, secret = await make_schedule(memory)
    closed = await create(memory, cron="0 * * * *")
    closed_secret = await make_secret(memory, closed.schedule_id)
    unsigned = await create(memory, on_webhook=True)
    other_id, other_secret = await make_schedule(memory)
    good = sign(secret, "e1", BODY, START)
    for_other = sign(other_secret, "e1", BODY, START)
    wrong = [
        (new_id(), good),
        ("../schedules", good),
        ("", good),
        (schedule_id, for_other),
        (other_id, good),
        (closed.schedule_id, sign(closed_secret, "e1", BODY, START)),
        (unsigned.schedule_id, sign(NO_SECRET, "e1", BODY, START)),
        (schedule_id, good | {"payload": b'{"ticket":8}'}),
        (schedule_id, good | {"webhook_id": "e2"}),
        (schedule_id, good | {"timestamp": str(START // 1000 + 1)}),
        (schedule_id, good | {"signature": ""}),
        (schedule_id, good | {"signature": good["signature"].replace("v1,", "v2,")}),
        (schedule_id, good | {"signature": " ".join(["v1,AAAA"] * 16 + [good["signature"]])}),
        (schedule_id, sign(secret, "e1", BODY, START - (TOLERANCE_S + 1) * 1000)),
        (schedule_id, sign(secret, "e1", BODY, START + (TOLERANCE_S + 1) * 1000)),
        (schedule_id, sign(secret, "", BODY, START)),
        (schedule_id, sign(secret, "e 1", BODY, START)),
        (schedule_id, sign(secret, "x" * 257, BODY, START)),
        (schedule_id, sign(secret, "e1", "no JSON", START) | {"signature": "v1,AAAA"}),
    ]
    errors: set[str] = set()
    for target_id, fields in wrong:
        with pytest.raises(Unauthenticated) as caught:
            await receive(memory, target_id, fields)
        errors.add(f"{caught.value.message} {caught.value.metadata}")
    assert len(errors) == 1, "nobody learns what was wrong"
    assert (await get(memory, schedule_id)).posts_waiting == 0
    assert await receive(memory, schedule_id, good | {"signature": f"v1,AAAA v2,x {good['signature']}"}) == "accepted"
    old = sign(secret, "e3", BODY, START - TOLERANCE_S * 1000)
    assert await receive(memory, schedule_id, old) == "accepted"


async def test_a_new_secret_is_valid_at_once_and_the_old_one_until_keep_s_has_passed(
    memory: Memory, clock: Clock
) -> None:
    schedule_id, first = await make_schedule(memory)
    second = await make_secret(memory, schedule_id, keep_s=60)
    assert [await post(memory, schedule_id, secret, secret[-9:]) for secret in (first, second)] == ["accepted"] * 2
    clock.pass_to(START + MINUTE + 1)
    with pytest.raises(Unauthenticated):
        await post(memory, schedule_id, first, "e3", now=clock.now)
    assert await post(memory, schedule_id, second, "e3", now=clock.now) == "accepted"
    third = await make_secret(memory, schedule_id, keep_s=0)
    with pytest.raises(Unauthenticated):
        await post(memory, schedule_id, second, "e4", now=clock.now)
    assert await post(memory, schedule_id, third, "e4", now=clock.now) == "accepted"
    for keep_s in (-1, 604_801):
        with pytest.raises(InvalidRequest, match="keepS"):
            await make_secret(memory, schedule_id, keep_s=keep_s)
    with acting_as(BOB), pytest.raises(NotFound):
        await make_secret(memory, schedule_id)


@pytest.mark.parametrize("body", ["", "{", "NaN", '{"a":1} 2', "[" * 5000, f'"{"x" * PAYLOAD_BYTES_MAX}"'])
async def test_a_signed_payload_must_be_json_of_a_bounded_size(memory: Memory, body: str) -> None:
    schedule_id, secret = await make_schedule(memory)
    with pytest.raises(InvalidRequest, match="payload"):
        await post(memory, schedule_id, secret, body=body)
    assert not (await list_due(memory)).due


async def test_waiting_posts_and_remembered_ids_are_bounded(memory: Memory, clock: Clock) -> None:
    schedule_id, secret = await make_schedule(memory)
    for number in range(POSTS_MAX):
        assert await post(memory, schedule_id, secret, f"e{number}") == "accepted"
    with pytest.raises(QueueFull) as caught:
        await post(memory, schedule_id, secret, "one-more")
    assert caught.value.retry_after_s
    for number in range(POSTS_MAX, TAKEN_MAX):
        await record(memory, await take_next(memory, clock))
        assert await post(memory, schedule_id, secret, f"e{number}") == "accepted"
    for number in range(TAKEN_MAX):
        assert await post(memory, schedule_id, secret, f"e{number}") == "duplicate"


async def test_a_replayed_post_starts_nothing_even_after_many_others(memory: Memory, clock: Clock) -> None:
    schedule_id, secret = await make_schedule(memory)
    captured = sign(secret, "e0", BODY, clock.now - 1000)
    assert (await memory.call("ReceiveWebhook", schedule_id=schedule_id, **captured)).status == "accepted"
    for number in range(TAKEN_MAX + 20):
        await record(memory, await take_next(memory, clock))
        # Posts of a sender do not always arrive in the order in which they were signed.
        signed_at = clock.now + 1000 * (number % 2)
        assert await post(memory, schedule_id, secret, f"f{number}", now=signed_at) == "accepted"
    await record(memory, await take_next(memory, clock))
    with pytest.raises(QueueFull):
        await memory.call("ReceiveWebhook", schedule_id=schedule_id, **captured)
    assert not (await list_due(memory)).due


async def test_posts_wait_for_each_other_and_are_missed_if_nobody_starts_them(memory: Memory, clock: Clock) -> None:
    schedule_id, secret = await make_schedule(memory, overlap="queue")
    for name in ("e1", "e2", "e3"):
        await post(memory, schedule_id, secret, name)
    for _ in range(10):  # e1 waits for the previous run, for longer than the grace period
        clock.pass_to(clock.now + MINUTE)
        await record(memory, await take_next(memory, clock), "queued")
    clock.pass_to(clock.now + 6_000)
    await record(memory, await take_next(memory, clock))
    assert (await take_next(memory, clock)).post.webhook_id == "e2", "its time of grace has begun when e1 had its run"
    clock.pass_to(clock.now + 121_000)
    await list_due(memory)
    firings = (await get(memory, schedule_id)).firings
    assert [(firing.webhook_id, firing.outcome) for firing in firings] == [("e2", "missed"), ("e1", "started")]


async def test_posts_do_not_change_the_cron_times_and_a_pause_refuses_them(memory: Memory, clock: Clock) -> None:
    schedule_id, secret = await make_schedule(memory, cron="0 * * * *")
    next_at = (await get(memory, schedule_id)).next_at
    await post(memory, schedule_id, secret, "e1")
    await record(memory, await take_next(memory, clock))
    assert (await get(memory, schedule_id)).next_at == next_at, "the times go on as they were"
    await update(memory, schedule_id, paused=True)
    assert await post(memory, schedule_id, secret, "e2") == "paused"
    await update(memory, schedule_id, paused=False)
    assert await post(memory, schedule_id, secret, "e2") == "accepted", "it was not taken before"
    assert (await update(memory, schedule_id, on_webhook=False)).posts_waiting == 0
    with pytest.raises(Unauthenticated):
        await post(memory, schedule_id, secret, "e3")


async def test_a_schedule_needs_times_or_posts(memory: Memory) -> None:
    schedule = await create(memory, on_webhook=True)
    assert (schedule.next_at, schedule.on_webhook) == (0, True)
    with pytest.raises(InvalidRequest, match="cron"):
        await update(memory, schedule.schedule_id, on_webhook=False)
    with pytest.raises(InvalidRequest, match="cron"):
        await create(memory)
    same = {"schedule_id": schedule.schedule_id, "on_webhook": True}
    await make_secret(memory, schedule.schedule_id)
    assert (await create(memory, **same)).schedule_id == schedule.schedule_id, "the same request is repeated"
