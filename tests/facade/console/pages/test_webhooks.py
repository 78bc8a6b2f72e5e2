"""The webhooks page: creating one with a secret shown once, pausing, deleting, and replaying dead letters."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from playwright.async_api import expect

from services.memory.storage.records.webhooks import DEAD, Delivery, DeliveryQuery
from services.memory.webhooks.store import WebhookStore
from services.runtime.net.allow_list import AllowList
from tests.support.console.page import Opening
from tests.support.console.scripted import Memory, Orchestrator
from tests.support.facade.records import ListedWebhooks

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDED = "headrace.run.ended"
LETTERS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")


class DeadLetters(ListedWebhooks):
    """A store with two events that their receiver refused."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = [*LETTERS]
        self.replayed: list[tuple[str, ...]] = []

    async def list_deliveries(self, query: DeliveryQuery) -> tuple[list[Delivery], None]:
        if query.state not in ("", DEAD):
            return await super().list_deliveries(query)
        given: dict[str, Any] = {"tenant": "default", "type": ENDED, "agent_key": "helper", "state": DEAD, "tries": 9}
        found = [
            Delivery(
                webhook_id=query.webhook_id,
                event_id=letter,
                subject="",
                run_id="",
                gate_id="",
                occurred_at=1_790_000_000_000,
                payload="{}",
                began_at=0,
                next_at=0,
                closed_at=1_790_000_000_000,
                status=500,
                failure="the receiver answered 500",
                **given,
            )
            for letter in self.letters
        ]
        return found, None

    async def replay(self, webhook_id: str, event_ids: Sequence[str], now: int) -> int:
        self.replayed.append(tuple(event_ids))
        again = [letter for letter in self.letters if not event_ids or letter in event_ids]
        self.letters = [letter for letter in self.letters if letter not in again]
        return len(again)


async def test_a_webhook_is_created_and_its_secret_is_shown_once(opening: Opening) -> None:
    async with opening(place="#page=webhooks", bypass_csp=True) as console:
        page, store = console.page, console.suite.memory.webhooks
        await expect(page.get_by_text("No webhooks.")).to_be_visible()
        await page.get_by_role("button", name="New webhook").click()
        form = page.get_by_role("dialog", name="New webhook")
        await form.get_by_role("textbox", name=re.compile("^URL")).fill("https://127.0.0.1/hook")
        await form.get_by_role("button", name="Create").click()
        await expect(form.get_by_role("alert")).to_contain_text("127.0.0.1")
        await form.get_by_role("textbox", name=re.compile("^URL")).fill("https://hooks.example.com/a")
        for label in (ENDED, "gate.opened", "Helper", "Writer"):
            await form.get_by_role("checkbox", name=label).check()
        await form.get_by_role("button", name="Create").click()
        secret = page.get_by_label("Secret of hooks.example.com")
        assert (await secret.input_value()).startswith("whsec_")
        await console.check_accessibility()
        (webhook,) = await store.list_own()
        assert list(webhook.types) == [ENDED, "headrace.gate.opened"]
        assert list(webhook.agent_keys) == ["helper", "writer"]
        await page.get_by_role("button", name="I have saved it").click()
        await expect(secret).to_have_count(0)
        await page.reload()
        row = page.get_by_role("region", name="Webhooks").locator("tbody tr")
        await expect(row).to_contain_text("run.ended, gate.openedhelper, writer")
        await expect(page.get_by_text("whsec_")).to_have_count(0)


@pytest.mark.nightly
async def test_a_webhook_is_paused_given_a_new_secret_and_deleted(opening: Opening) -> None:
    memory = Memory()
    await memory.webhooks.create("https://hooks.example.com/a", name="Mine")
    async with opening(memory=memory, place="#page=webhooks") as console:
        page = console.page
        await page.get_by_role("button", name="Pause: Mine").click()
        await expect(page.get_by_role("button", name="Resume: Mine")).to_be_focused()
        await page.get_by_role("button", name="Mine https://hooks").click()
        await console.confirm("New secret: Mine", "New secret")
        await expect(page.get_by_label("Secret of Mine")).to_have_value(re.compile("^whsec_"))
        await console.confirm("Delete: Mine", "Delete")
        await expect(page.get_by_text("No webhooks.")).to_be_visible()
        assert await memory.webhooks.list_own() == []


@pytest.mark.nightly
async def test_dead_letters_are_replayed_singly_or_all_together(opening: Opening) -> None:
    listed: Any = DeadLetters()
    memory = Memory(webhooks=WebhookStore(listed, AllowList()))
    await memory.webhooks.create("https://hooks.example.com/a", name="Mine")
    async with opening(memory=memory, place="#page=webhooks", bypass_csp=True) as console:
        page = console.page
        await page.get_by_role("button", name="Mine https://hooks").click()
        rows = page.get_by_role("region", name="Deliveries to Mine").locator("tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("500: the receiver answered 500")
        await console.check_accessibility()
        await rows.first.get_by_role("button", name="Replay").click()
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="Replay all: Mine").click()
        await expect(page.get_by_text("1 queued again.")).to_be_visible()
        await expect(page.get_by_text("No deliveries.")).to_be_visible()
        assert listed.replayed == [LETTERS[:1], ()]
        await page.get_by_role("button", name="Send ping: Mine").click()
        await page.get_by_role("combobox", name="Deliveries").select_option("delivered")
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("204")


@pytest.mark.nightly
async def test_the_webhooks_link_is_shown_only_to_users_who_may_manage_webhooks(opening: Opening) -> None:
    script = Orchestrator(scopes=("answer", "ask"))
    async with opening(script=script, place="#page=spend") as console:
        links = console.page.get_by_role("navigation", name="Pages").get_by_role("link")
        await expect(console.page.get_by_role("option", name="everyone in the tenant")).to_have_count(0)
        await expect(links).to_have_text(["Chats", "Inbox", "Agents", "Schedules", "Spend", "Recordings"])
    async with opening() as console:
        await console.page.get_by_text("Operate").click()
        links = console.page.get_by_role("navigation", name="Pages").get_by_role("link")
        expected = [
            "Chats",
            "Inbox",
            "Agents",
            "Schedules",
            "Live",
            "Spend",
            "Recordings",
            "Webhooks",
            "Keys",
            "Data",
            "Audit",
            "Providers",
        ]
        await expect(links).to_have_text(expected)
