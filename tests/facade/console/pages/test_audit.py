"""The page of the audit log: who has done what, and whether the log is as it was written."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.support.console.page import Opening

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_deed_is_shown_and_the_log_verified(opening: Opening) -> None:
    async with opening(place="#page=keys", bypass_csp=True) as console:
        page = console.page
        await page.get_by_text("New key").click()
        await page.get_by_role("textbox", name="Name display").fill("laptop")
        await page.get_by_role("textbox", name="User the owner").fill("<b>bob</b>")
        await page.get_by_role("button", name="Create").click()
        await expect(page.get_by_label("Key laptop")).to_be_visible()
        await console.go("Audit")
        row = page.get_by_role("region", name="Audit log").get_by_role("row").nth(1)
        await expect(row).to_contain_text("key.made")
        await expect(row).to_contain_text("of: <b>bob</b>")
        await page.get_by_role("button", name="Verify the log").click()
        await expect(page.get_by_role("status").filter(has_text="1 lines are intact")).to_be_visible()
        await console.check_accessibility()
