"""The page of API keys: made with a text that is shown once, disabled, revoked."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.support.console.page import Opening

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_key_is_made_and_its_text_is_shown_once(opening: Opening) -> None:
    async with opening(place="#page=keys", bypass_csp=True) as console:
        page, store = console.page, console.suite.memory.keys
        await expect(page.get_by_text("No keys.")).to_be_visible()
        await page.get_by_text("New key").click()
        await page.get_by_role("textbox", name="Name display").fill("laptop")
        await page.get_by_role("textbox", name="User the owner").fill("with a space")
        await page.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("alert").filter(has_text="user")).to_be_visible()
        await page.get_by_role("textbox", name="User the owner").fill("bob")
        await page.get_by_label("answer gates").uncheck()
        await page.get_by_role("textbox", name="Roles comma").fill("staff, ci")
        await page.get_by_role("spinbutton", name="Concurrent runs").fill("2")
        await page.get_by_role("button", name="Create").click()
        text = page.get_by_label("Key laptop")
        await expect(text).to_be_focused()
        await expect(text).to_be_in_viewport()
        assert (await text.input_value()).startswith("hrk_")
        await console.check_accessibility()
        (made,) = await store.list_own("", "")
        assert (made.user, made.scopes, made.roles, made.runs_max) == ("bob", ("ask",), ("ci", "staff"), 2)
        await page.get_by_role("button", name="I have saved it").click()
        await expect(text).to_have_count(0)
        await page.reload()
        await page.get_by_role("combobox", name="Show").select_option("unconfirmed")
        item = page.get_by_role("list", name="Keys").locator("> li")
        await expect(item).to_contain_text("bob · ask")
        await expect(item).to_contain_text("roles: ci, staff · 2 runs at once")
        await expect(page.get_by_text("hrk_")).to_have_count(0)


@pytest.mark.nightly
async def test_a_key_is_disabled_and_revoked(opening: Opening) -> None:
    async with opening(place="#page=keys") as console:
        page, store = console.page, console.suite.memory.keys
        key, _ = await store.create("", {"name": "robot", "user": "default", "kind": "service"})
        await page.get_by_role("button", name="Refresh").click()
        await page.get_by_role("button", name="Disable: robot").click()
        await expect(page.get_by_text("No keys.")).to_be_visible()
        await page.get_by_role("combobox", name="Show").select_option("disabled")
        await page.get_by_role("button", name="Enable: robot").click()
        await expect(page.get_by_text("No keys.")).to_be_visible()
        await page.get_by_role("combobox", name="Show").select_option("all")
        await console.confirm("Revoke: robot", "Revoke")
        item = page.get_by_role("list", name="Keys").locator("> li")
        await expect(item).to_contain_text("revoked")
        await expect(item.get_by_role("button")).to_have_count(0)
        assert (await store.get(key.key_id)).find_state(0) == "revoked"
