"""The schedules page: creating, pausing, triggering and deleting schedules, and their last results."""

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
        items = page.get_by_role("region", name="Schedules").locator("tbody tr")
        await expect(items).to_have_count(2)
        await expect(items.first).to_contain_text("helperMonday to Friday at 9:3030 9 * * 1-5 · Europe/Berlin")
        await expect(items.first).to_contain_text(re.compile("9:30.*(GMT|CE)"))
        await expect(items.first.get_by_role("link", name="chat")).to_have_attribute("href", f"#chat={CHAT}")
        await expect(items.nth(1)).to_contain_text("Once")
        results = page.get_by_role("button", name="Morning <b>news</b>", exact=True)
        await results.click()
        await expect(results).to_be_focused()
        rows = page.get_by_role("region", name="Last results of Morning").locator("tbody tr")
        await expect(rows).to_have_text([re.compile("started"), re.compile("failed.*no agent has the key 'helper'")])
        await expect(page.get_by_role("group", name="Message of Morning")).to_have_text("What is new?")
        await console.check_accessibility()
        await results.click()
        await expect(rows).to_have_count(0)


@pytest.mark.nightly
async def test_a_schedule_is_paused_triggered_and_deleted(opening: Opening) -> None:
    memory = Memory(schedules=await make_schedules())
    async with opening(memory=memory, place="#page=schedules") as console:
        page = console.page
        rows = page.get_by_role("region", name="Schedules").locator("tbody tr")
        first = rows.first
        await page.get_by_role("button", name="Pause: Morning").click()
        await expect(page.get_by_role("button", name="Resume: Morning")).to_be_focused()
        await expect(first).to_contain_text("paused")
        assert [schedule.paused for schedule in (await memory.schedules.list_own())[0]] == [True, False]
        await page.get_by_role("button", name="Run now: Morning").click()
        await expect(first).to_contain_text("a triggered run is about to start")
        await page.get_by_role("button", name="Once", exact=True).click()
        await console.confirm("Delete: Once", "Delete")
        await expect(rows).to_have_count(1)
        assert len((await memory.schedules.list_own())[0]) == 1


async def test_a_schedule_is_created(opening: Opening) -> None:
    async with opening(place="#page=schedules", timezone_id="Asia/Tokyo", bypass_csp=True) as console:
        page, store = console.page, console.suite.memory.schedules
        await expect(page.get_by_text("No schedules.")).to_be_visible()
        form = page.get_by_role("dialog", name="New schedule")
        runs = form.get_by_role("combobox", name="Runs")
        await page.get_by_role("button", name="New schedule").click()
        await form.get_by_role("combobox", name="Agent").select_option("Writer")
        await form.get_by_label("Message to the agent").fill("Write.")
        await runs.select_option("By cron expression")
        await form.get_by_label("Cron", exact=False).last.fill("every day")
        await expect(form.get_by_label("Time zone")).to_have_value("Asia/Tokyo")
        await form.get_by_role("button", name="Create").click()
        await expect(form.get_by_role("alert")).to_contain_text("cron")
        await runs.select_option("Every week")
        await form.get_by_role("combobox", name="On", exact=True).select_option("Monday")
        await form.get_by_label("Time", exact=True).fill("09:00")
        await expect(form.get_by_text("Every Monday at 9:00 (Asia/Tokyo)")).to_be_visible()
        await console.check_accessibility()
        await form.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("button", name="Pause: Write.")).to_be_visible()
        await page.get_by_role("button", name="New schedule").click()
        await form.get_by_role("combobox", name="Agent").select_option("Helper")
        await form.get_by_label("Message to the agent").fill("Once.")
        await runs.select_option("Once")
        await expect(form.get_by_label("Time zone")).to_be_hidden()
        await form.get_by_label("At", exact=True).fill("2090-01-02T09:00")
        await form.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("button", name="Pause: Once.")).to_be_visible()
        schedules, _ = await store.list_own()
        assert [(schedule.agent_key, schedule.cron, schedule.once_at) for schedule in schedules] == [
            ("writer", "0 9 * * 1", 0),
            ("helper", "", 3_786_998_400_000),
        ]
        assert schedules[0].time_zone == "Asia/Tokyo"


@pytest.mark.nightly
async def test_a_schedules_times_are_edited_in_words(opening: Opening) -> None:
    memory = Memory(schedules=await make_schedules())
    async with opening(memory=memory, place="#page=schedules") as console:
        page = console.page
        await page.get_by_role("button", name="Morning <b>news</b>", exact=True).click()
        await page.get_by_role("button", name="Edit: Morning").click()
        form = page.get_by_role("dialog")
        await expect(form.get_by_label("Message to the agent")).to_have_value("What is new?")
        await expect(form.get_by_role("combobox", name="Runs")).to_have_value("workdays")
        await expect(form.get_by_label("Time", exact=True)).to_have_value("09:30")
        await form.get_by_role("combobox", name="Runs").select_option("Every month")
        await form.get_by_label("Day of the month").fill("15")
        await form.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Monthly on day 15 at 9:30")).to_be_visible()
        (changed, _), _ = await memory.schedules.list_own()
        assert (changed.cron, changed.time_zone, changed.message) == ("30 9 15 * *", "Europe/Berlin", "What is new?")


@pytest.mark.nightly
async def test_a_post_triggered_schedule_shows_its_secret_once(opening: Opening) -> None:
    async with opening(place="#page=schedules") as console:
        page, store = console.page, console.suite.memory.schedules
        form = page.get_by_role("dialog", name="New schedule")
        await page.get_by_role("button", name="New schedule").click()
        await form.get_by_role("combobox", name="Agent").select_option("Writer")
        await form.get_by_label("Message to the agent").fill("Read {{payload}}")
        await form.get_by_role("combobox", name="Runs").select_option("When another system posts")
        await expect(form.get_by_label("Time zone")).to_be_hidden()
        await form.get_by_role("button", name="Create").click()
        secret = page.get_by_label("Secret of Read")
        await expect(secret).to_be_focused()
        ((schedule,), _) = await store.list_own()
        await expect(secret).to_have_value(schedule.secrets[0].text)
        await expect(page.get_by_label("Address of Read")).to_have_value(
            re.compile(f"^http.*/hooks/{schedule.schedule_id}$")
        )
        await expect(page.get_by_text("waiting for a post")).to_be_visible()
        await page.get_by_role("button", name="I have saved it").click()
        await expect(secret).to_have_count(0)
        await page.get_by_role("button", name="Read {{payload}}", exact=True).click()
        await console.confirm("New secret: Read", "New secret")
        await expect(secret).not_to_have_value(schedule.secrets[0].text)
