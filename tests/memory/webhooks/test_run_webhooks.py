"""Webhooks of single runs, as callers over A2A set them, on both engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from services.memory.chats.access import ChatAccess
from services.memory.webhooks import run_webhooks
from services.memory.webhooks.run_webhooks import RunWebhookStore, make_find_end
from services.runtime.auth.identity import DEFAULT, Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.webhooks import ALLOW, Writer, deliver, store_of
from tests.support.memory.writing import new_id

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.memory.storage.records.webhooks import Webhook
    from tests.support.webhook_receiver import Receiver

pytestmark = pytest.mark.engines

EVE = Identity("default", "eve")


def store_of_runs(engine: Engine) -> RunWebhookStore:
    return RunWebhookStore(engine.records.webhooks, make_find_end(ChatAccess(engine), engine.chats), ALLOW)


async def put(engine: Engine, run_id: str, url: str, **fields: str) -> Webhook:
    given = {"config_id": "mine", "token": "", "auth_scheme": "", "auth_credentials": ""} | fields
    webhook = await store_of_runs(engine).put(run_id, url=url, **given)
    assert webhook is not None
    return webhook


def list_states(receiver: Receiver) -> list[tuple[str, str]]:
    updates = [json.loads(post.body)["statusUpdate"] for post in receiver.posts]
    return [(update["taskId"], update["status"]["state"]) for update in updates]


async def test_a_run_webhook_receives_only_the_events_of_its_run_in_a2a_form(
    engine_in_use: Engine, receiver: Receiver
) -> None:
    engine, write = engine_in_use, Writer(engine_in_use)
    chat_id, run_id = await write.begin()
    secrets = {"token": "t0ken", "auth_scheme": "Bearer", "auth_credentials": "s3cret"}
    webhook = await put(engine, run_id, receiver.url, **secrets)
    await write.run()
    await write.open_gate(chat_id, run_id, "g")
    await write.close_gate(chat_id, run_id, "g")
    await write.end(chat_id, run_id)
    async with deliver(engine, receiver):
        posts = await receiver.wait_for(2)
    assert list_states(receiver) == [(run_id, "TASK_STATE_INPUT_REQUIRED"), (run_id, "TASK_STATE_COMPLETED")]
    headers = posts[-1].headers
    assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Bearer s3cret", "t0ken")
    assert (headers["content-type"], "webhook-signature" in headers) == ("application/json", False)
    assert json.loads(posts[-1].body)["statusUpdate"]["contextId"] == chat_id
    assert "a secret" not in str([post.body for post in posts])
    assert await store_of(engine).list_own() == []
    with pytest.raises(NotFound):
        await store_of(engine).get(webhook.webhook_id)


async def test_a_run_that_ended_before_is_sent_once_and_its_webhook_is_deleted_later(
    engine_in_use: Engine, receiver: Receiver
) -> None:
    engine, write = engine_in_use, Writer(engine_in_use)
    chat_id, run_id = await write.begin()
    await write.end(chat_id, run_id, state="failed")
    for _ in range(2):
        await put(engine, run_id, receiver.url)
    async with deliver(engine, receiver):
        await receiver.wait_for(1)
        async with asyncio.timeout(120):
            while (await engine.records.webhooks.count_backlog()).waiting:
                await asyncio.sleep(0.02)
    assert list_states(receiver) == [(run_id, "TASK_STATE_FAILED")]
    assert len(await store_of_runs(engine).list_of_run(run_id)) == 1
    await engine.records.webhooks.forget(now_ms() - 7 * 24 * 3_600_000 + 1000)
    assert await store_of_runs(engine).list_of_run(run_id) == []


async def test_a_deleted_run_webhook_receives_nothing(engine_in_use: Engine, receiver: Receiver) -> None:
    engine, write = engine_in_use, Writer(engine_in_use)
    chat_id, run_id = await write.begin()
    await put(engine, run_id, receiver.url)
    await put(engine, run_id, receiver.url, config_id="kept")
    for _ in range(2):
        await store_of_runs(engine).delete(run_id, "mine")
    await write.end(chat_id, run_id)
    async with deliver(engine, receiver):
        await receiver.wait_for(1)
    assert [webhook.config_id for webhook in await store_of_runs(engine).list_of_run(run_id)] == ["kept"]
    assert len(receiver.posts) == 1


async def test_runs_of_other_users_are_not_found(engine_in_use: Engine, receiver: Receiver) -> None:
    store = store_of_runs(engine_in_use)
    _, run_id = await Writer(engine_in_use).begin()
    calls: list[Callable[[str], Any]] = [
        lambda run: put(engine_in_use, run, receiver.url),
        store.list_of_run,
        lambda run: store.delete(run, "mine"),
    ]
    for call in calls:
        with acting_as(EVE), pytest.raises(NotFound, match=run_id):
            await call(run_id)
        with acting_as(DEFAULT), pytest.raises(NotFound):
            await call(new_id())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "http://hooks.example/"}, "url"),
        ({"token": "a b"}, "token"),
        ({"auth_scheme": "Bearer", "auth_credentials": "a\r\nb"}, "authCredentials"),
        ({"auth_credentials": "x"}, "authScheme"),
    ],
)
async def test_an_invalid_field_is_named_even_without_a_run(
    engine_in_use: Engine, receiver: Receiver, fields: dict[str, str], field: str
) -> None:
    given = {"url": receiver.url} | fields
    with pytest.raises(InvalidRequest, match=field):
        await put(engine_in_use, "", **given)
    plain = {"token": "", "auth_scheme": "", "auth_credentials": ""}
    assert await store_of_runs(engine_in_use).put("", "", receiver.url, **plain) is None


async def test_the_number_of_a_runs_webhooks_is_bounded(engine_in_use: Engine, receiver: Receiver) -> None:
    write = Writer(engine_in_use)
    chat_id, run_id = await write.begin()
    await write.end(chat_id, run_id)  # so that nothing has to be waited for
    for number in range(run_webhooks.OF_RUN_MAX):
        await put(engine_in_use, run_id, receiver.url, config_id=str(number))
    with pytest.raises(QuotaExceeded):
        await put(engine_in_use, run_id, receiver.url, config_id="more")
    await put(engine_in_use, run_id, receiver.url, config_id="0")
