"""The API keys page: creating a key whose text is shown once, disabling and revoking it."""

import re

import pytest
from playwright.async_api import expect

from tests.support.console.page import Opening

STATES = ["active", "unconfirmed", "disabled", "expired", "revoked"]

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_key_is_created_and_its_text_is_shown_once(opening: Opening) -> None:
    async with opening(place="#page=keys", bypass_csp=True) as console:
        page, store = console.page, console.suite.memory.keys
        await expect(page.get_by_text("No keys.")).to_be_visible()
        await page.get_by_role("button", name="New key").click()
        form = page.get_by_role("dialog", name="New key")
        await form.get_by_role("textbox", name=re.compile("^Name")).fill("laptop")
        await form.get_by_role("textbox", name=re.compile("^User")).fill("with a space")
        await form.get_by_role("button", name="Create").click()
        await expect(form.get_by_role("alert")).to_contain_text("user")
        await form.get_by_role("textbox", name=re.compile("^User")).fill("bob")
        await form.get_by_label("answer: approve").uncheck()
        await form.get_by_role("textbox", name="Roles").fill("staff, ci")
        await form.get_by_role("spinbutton", name="Concurrent runs").fill("2")
        await console.check_accessibility()
        await form.get_by_role("button", name="Create").click()
        text = page.get_by_label("Secret of laptop")
        await expect(text).to_be_focused()
        await expect(text).to_be_in_viewport()
        assert (await text.input_value()).startswith("hrk_")
        await console.check_accessibility()
        (key,) = await store.list_own("", "")
        assert (key.user, key.scopes, key.roles, key.runs_max) == ("bob", ("ask",), ("ci", "staff"), 2)
        await page.get_by_role("button", name="I have saved it").click()
        await expect(text).to_have_count(0)
        await page.get_by_role("combobox", name="State").select_option("unconfirmed")
        await page.reload()
        await expect(page.get_by_role("combobox", name="State")).to_have_value(str(STATES.index("unconfirmed")))
        row = page.get_by_role("region", name="Keys").locator("tbody tr")
        await expect(row).to_contain_text(["laptopbobunconfirmedaskci, staff"])
        await row.get_by_role("button", name="laptop", exact=True).click()
        await expect(row.last).to_contain_text("Concurrent runs2")
        await expect(page.get_by_text("hrk_")).to_have_count(0)


@pytest.mark.nightly
async def test_a_key_is_edited_disabled_and_revoked(opening: Opening) -> None:
    async with opening(place="#page=keys") as console:
        page, store = console.page, console.suite.memory.keys
        key, _ = await store.create("", {"name": "robot", "user": "default", "kind": "service", "runs_max": 3})
        await page.reload()
        rows = page.get_by_role("region", name="Keys").locator("tbody tr")
        await page.get_by_role("button", name="Edit: robot").click()
        form = page.get_by_role("dialog")
        await expect(form.get_by_role("spinbutton", name="Concurrent runs")).to_have_value("3")
        await form.get_by_role("textbox", name=re.compile("^Name")).fill("machine")
        await form.get_by_role("spinbutton", name="Concurrent runs").fill("")
        await form.get_by_role("button", name="Save").click()
        await expect(rows.first).to_contain_text("machine")
        changed = await store.get(key.key_id)
        assert (changed.name, changed.runs_max or 0, changed.scopes) == ("machine", 0, ("answer", "ask"))
        await page.get_by_role("button", name="machine", exact=True).click()
        await page.get_by_role("button", name="Disable: machine").click()
        await expect(rows.first).to_contain_text("disabled")
        await page.get_by_role("button", name="Enable: machine").click()
        await expect(rows.first).to_contain_text("active")
        await console.confirm("Revoke: machine", "Revoke")
        await expect(rows.first).to_contain_text("revoked")
        await expect(rows.first.get_by_role("button")).to_have_text(["machine"])
        assert (await store.get(key.key_id)).find_state(0) == "revoked"
