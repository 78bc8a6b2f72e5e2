"""A form open in two pages of a real browser, at a suite with default settings."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support.chromium import open_browser
from tests.support.clients.script import ASKING, write_asker
from tests.support.order import Event
from tests.support.suite import Suite, fresh_suite

WAIT_MS = 60_000


async def open_form(browser: Browser, suite: Suite, started: Event) -> Page:
    pages = await browser.new_context()
    pages.set_default_timeout(WAIT_MS)
    page = await pages.new_page()
    await page.goto(f"{suite.url}/#chat={started['chatId']}&run={started['runId']}")
    await page.get_by_label("Which mill?").wait_for()
    return page


@pytest.mark.nightly
async def test_a_form_open_in_two_tabs_is_claimed_by_one_at_a_time(tmp_path: Path) -> None:
    write_asker(tmp_path)
    async with fresh_suite(tmp_path) as suite, open_browser("two tabs are NOT tested") as browser:
        suite.play(*ASKING)
        expect.set_options(timeout=WAIT_MS)
        async with suite.query("hello", "asker") as events:
            events_before: list[Event] = []
            while not events_before or events_before[-1]["type"] != "gate.open":
                events_before.append(await anext(events))
            run_start = next(event for event in events_before if event["type"] == "run.start")
            gate = {"runId": run_start["runId"], "gateId": events_before[-1]["gateId"]}
            first_tab = await open_form(browser, suite, run_start)
            second_tab = await open_form(browser, suite, run_start)
            await first_tab.get_by_label("Which mill?").fill("the old")
            blocked = second_tab.get_by_text("Being answered by default until")
            await expect(blocked).to_be_visible()
            await expect(second_tab.get_by_label("Which mill?")).to_be_disabled()
            # The first tab's claim survives its reload: it may continue at once, and the second one may not.
            await first_tab.reload()
            await first_tab.get_by_label("Which mill?").fill("the new")
            await expect(blocked).to_be_visible()
            # The claim is released when the first tab leaves the form.
            await first_tab.locator("#message").focus()
            await expect(blocked).to_have_count(0)
            await second_tab.get_by_label("Which mill?").fill("the other")
            await expect(first_tab.get_by_text("Being answered by default until")).to_be_visible()
            await second_tab.locator("#message").focus()
            # Another client's claim ends with its lease, and then the tab may take the form over.
            claim = gate | {"holder": "a third", "leaseMs": 2000}
            while (await suite.post("/api/gate/claim", claim))[0] != 200:
                await asyncio.sleep(0.1)
            await second_tab.get_by_role("button", name="Take over").click()
            await second_tab.get_by_role("button", name="Submit").click()
            events_after = [event async for event in events]
    submitted = next(event for event in events_after if event["type"] == "request.submit")
    assert submitted["payload"] == {"answer": "the other"}
    assert events_after[-1]["type"] == "run.complete"
