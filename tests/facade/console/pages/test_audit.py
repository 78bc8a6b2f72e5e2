"""The audit log page: who did what, and whether the log is unchanged."""

import re

import pytest
from playwright.async_api import expect

from tests.support.console.page import Opening

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_page_shows_an_action_and_verifies_the_log(opening: Opening) -> None:
    async with opening(place="#page=keys", bypass_csp=True) as console:
        page = console.page
        await page.get_by_role("button", name="New key").click()
        form = page.get_by_role("dialog")
        await form.get_by_role("textbox", name=re.compile("^Name")).fill("laptop")
        await form.get_by_role("textbox", name=re.compile("^User")).fill("<b>bob</b>")
        await form.get_by_role("button", name="Create").click()
        await expect(page.get_by_label("Secret of laptop")).to_be_visible()
        await page.goto(f"{console.suite.url}/#page=audit")
        rows = page.get_by_role("region", name="Audit log").locator("tbody tr")
        await expect(rows).to_contain_text(["key.made"])
        await expect(rows).to_contain_text(["of: <b>bob</b>"])
        await page.get_by_role("combobox", name="What").select_option("webhook")
        await expect(page.get_by_text("No lines.")).to_be_visible()
        await page.get_by_role("combobox", name="What").select_option("key")
        await expect(rows).to_have_count(1)
        await page.get_by_role("textbox", name="Who").fill("nobody")
        await page.get_by_role("textbox", name="Who").press("Enter")
        await expect(page.get_by_text("No lines.")).to_be_visible()
        await page.get_by_role("textbox", name="Who").fill("default")
        await page.get_by_label("Until").fill("2020-01-01T00:00")
        await page.get_by_label("Until").press("Tab")
        await expect(page.get_by_text("No lines.")).to_be_visible()
        await page.get_by_label("Until").fill("")
        await page.get_by_label("From").fill("2020-01-01T00:00")
        await page.get_by_label("From").press("Tab")
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="Verify the log").click()
        await expect(page.get_by_role("status").filter(has_text="1 lines are intact")).to_be_visible()
        await console.check_accessibility()
