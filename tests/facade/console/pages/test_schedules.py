"""The page of schedules: made, paused, triggered, deleted, and what became of their last times."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.support.console.page import Opening
from tests.support.console.schedules import make_schedules
from tests.support.console.scripted import Memory
from tests.support.facade.scripted import CHAT

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.nightly
async def test_schedules_are_listed_with_their_results(opening: Opening) -> None:
    memory = Memory(schedules=await make_schedules())
    async with opening(memory=memory, place="#page=schedules", bypass_csp=True) as console:
        page = console.page
        items = page.get_by_role("list", name="Schedules").locator("> li")
        await expect(items).to_have_count(2)
        await expect(items.first).to_contain_text("30 9 * * 1-5 (Europe/Berlin) · asks helper")
        await expect(items.first.get_by_role("link", name="chat")).to_have_attribute("href", f"#chat={CHAT}")
        await expect(items.nth(1)).to_contain_text("once,")
        results = page.get_by_role("button", name="results: Morning <b>news</b>")
        await results.click()
        await expect(results).to_be_focused()
        rows = page.get_by_role("region", name="Last results of Morning").locator("tbody tr")
        await expect(rows).to_have_text([re.compile("started"), re.compile("failed.*no agent has the key 'helper'")])
        await expect(items.first).to_contain_text("What is new?")
        await console.check_accessibility()
        await results.click()
        await expect(rows).to_have_count(0)


@pytest.mark.nightly
async def test_a_schedule_is_paused_triggered_and_deleted(opening: Opening) -> None:
    memory = Memory(schedules=await make_schedules())
    async with opening(memory=memory, place="#page=schedules") as console:
        page = console.page
        first = page.get_by_role("list", name="Schedules").locator("> li").first
        await page.get_by_role("button", name="Pause: Morning").click()
        await expect(page.get_by_role("button", name="Resume: Morning")).to_be_focused()
        await expect(first).to_contain_text("paused")
        assert [one.paused for one in (await memory.schedules.list_own())[0]] == [True, False]
        await page.get_by_role("button", name="Run now: Morning").click()
        await expect(first).to_contain_text("a triggered run is about to start")
        await console.confirm("Delete: Once", "Delete")
        await expect(page.get_by_role("list", name="Schedules").locator("> li")).to_have_count(1)
        assert len((await memory.schedules.list_own())[0]) == 1


async def test_a_schedule_is_made(opening: Opening) -> None:
    async with opening(place="#page=schedules", timezone_id="Asia/Tokyo") as console:
        page, store = console.page, console.suite.memory.schedules
        main = page.get_by_role("main")
        await expect(page.get_by_text("No schedules yet.")).to_be_visible()
        await page.get_by_text("New schedule").click()
        await main.get_by_role("combobox", name="Agent").select_option("writer")
        await main.get_by_label("Message to the agent").fill("Write.")
        await main.get_by_label("Cron").fill("every day")
        await expect(main.get_by_label("Time zone")).to_have_value("Asia/Tokyo")
        await page.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("alert").filter(has_text="cron")).to_be_visible()
        await main.get_by_label("Cron").fill("0 8 * * *")
        await page.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("button", name="Pause: Write.")).to_be_visible()
        await page.get_by_text("New schedule").click()
        await main.get_by_label("Message to the agent").fill("Once.")
        await main.get_by_role("combobox", name="Times").select_option("once")
        await expect(main.get_by_label("Cron")).to_be_hidden()
        await main.get_by_label("At", exact=True).fill("2090-01-02T09:00")
        await page.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("button", name="Pause: Once.")).to_be_visible()
        made, _ = await store.list_own()
        assert [(one.agent_key, one.cron, one.once_at) for one in made] == [
            ("writer", "0 8 * * *", 0),
            ("helper", "", 3_786_998_400_000),
        ]
        assert made[0].time_zone == "Asia/Tokyo"


@pytest.mark.nightly
async def test_a_schedule_for_posts_shows_its_secret_once(opening: Opening) -> None:
    async with opening(place="#page=schedules") as console:
        page, store = console.page, console.suite.memory.schedules
        main = page.get_by_role("main")
        await page.get_by_text("New schedule").click()
        await main.get_by_role("combobox", name="Agent").select_option("writer")
        await main.get_by_label("Message to the agent").fill("Read {{payload}}")
        await main.get_by_role("combobox", name="Times").select_option("webhook")
        await expect(main.get_by_label("Cron")).to_be_hidden()
        await page.get_by_role("button", name="Create").click()
        secret = page.get_by_label("Secret of Read")
        await expect(secret).to_be_focused()
        ((made,), _) = await store.list_own()
        await expect(secret).to_have_value(made.secrets[0].text)
        await expect(page.get_by_label("Address of Read")).to_have_value(
            re.compile(f"^http.*/hooks/{made.schedule_id}$")
        )
        await expect(page.get_by_text("waiting for a post")).to_be_visible()
        await page.get_by_role("button", name="I have saved it").click()
        await expect(secret).to_have_count(0)
        await console.confirm("New secret: Read", "New secret")
        await expect(secret).not_to_have_value(made.secrets[0].text)
