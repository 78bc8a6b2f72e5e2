"""A form that two pages have open at once, in a real browser at a suite as it starts."""

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
async def test_two_tabs_fight_over_a_form(tmp_path: Path) -> None:
    write_asker(tmp_path)
    async with fresh_suite(tmp_path) as suite, open_browser("two tabs are NOT tested") as browser:
        suite.play(*ASKING)
        expect.set_options(timeout=WAIT_MS)
        async with suite.query("hello", "asker") as events:
            seen: list[Event] = []
            while not seen or seen[-1]["type"] != "gate.open":
                seen.append(await anext(events))
            first = next(event for event in seen if event["type"] == "run.start")
            gate = {"runId": first["runId"], "gateId": seen[-1]["gateId"]}
            one = await open_form(browser, suite, first)
            two = await open_form(browser, suite, first)
            await one.get_by_label("Which mill?").fill("the old")
            blocked = two.get_by_text("Being answered by default until")
            await expect(blocked).to_be_visible()
            await expect(two.get_by_label("Which mill?")).to_be_disabled()
            # The first tab's claim survives its reload: it may go on at once, and the second may not.
            await one.reload()
            await one.get_by_label("Which mill?").fill("the new")
            await expect(blocked).to_be_visible()
            # It is given up when the first tab turns to something else.
            await one.locator("#message").focus()
            await expect(blocked).to_have_count(0)
            await two.get_by_label("Which mill?").fill("the other")
            await expect(one.get_by_text("Being answered by default until")).to_be_visible()
            await two.locator("#message").focus()
            # Any other client's claim ends with its lease, and the tab may take the form over.
            claim = gate | {"holder": "a third", "leaseMs": 2000}
            while (await suite.post("/api/gate/claim", claim))[0] != 200:
                await asyncio.sleep(0.1)
            await two.get_by_role("button", name="Take over").click()
            await two.get_by_role("button", name="Submit").click()
            rest = [event async for event in events]
    submitted = next(event for event in rest if event["type"] == "request.submit")
    assert submitted["payload"] == {"answer": "the other"}
    assert rest[-1]["type"] == "run.complete"
