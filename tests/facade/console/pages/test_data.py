"""The page of people's data: an archive saved, an erasure with its receipt, holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import Download, Page, expect

from tests.support.console.page import Opening
from tests.support.facade.data import ARCHIVE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def read(download: Download, folder: Path) -> bytes:
    path = folder / download.suggested_filename
    await download.save_as(path)
    return path.read_bytes()


async def fill(page: Page, title: str, *, name: str, reason: str = "", what: str = "") -> None:
    """Open the form and fill it in."""
    form = page.locator("details").filter(has=page.get_by_text(title, exact=True))
    await form.locator("summary").click()
    if what:
        await form.get_by_role("combobox", name="What").select_option(what)
    await form.get_by_role("textbox", name="Name").fill(name)
    await form.get_by_role("textbox", name="Reason").fill(reason)


@pytest.mark.nightly
async def test_an_archive_is_saved(opening: Opening, tmp_path: Path) -> None:
    async with opening(place="#page=data") as console:
        page = console.page
        await page.get_by_text("Export", exact=True).click()
        await page.get_by_role("textbox", name="Of user").fill("ada")
        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Save archive").click()
        download = await saving.value
        assert download.suggested_filename == "ada.tar"
        assert await read(download, tmp_path) == ARCHIVE + b"ada"


async def test_a_user_is_erased_and_the_receipt_is_shown(opening: Opening, tmp_path: Path) -> None:
    async with opening(place="#page=data", bypass_csp=True) as console:
        page, data = console.page, console.suite.script.data
        await expect(page.get_by_text("No erasures.")).to_be_visible()
        await fill(page, "Erase", name="<b>ada</b>", reason="ticket 4711")
        await console.confirm("Erase…", "Cancel")
        assert data.erasures == []
        await fill(page, "Erase", name="<b>ada</b>", reason="ticket 4711")
        await page.get_by_role("button", name="Erase…").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Erase all data of <b>ada</b>?")
        await dialog.get_by_role("button", name="Erase").click()
        item = page.get_by_role("list", name="Erasures").locator("> li")
        await expect(item).to_contain_text("user <b>ada</b>")
        await expect(item).to_contain_text("in progress")
        await expect(item).to_contain_text("ticket 4711")
        data.finish()
        await expect(item).to_contain_text("12 chats")
        await expect(item).to_contain_text("2 runs in others chats")
        await expect(item).to_contain_text("audit lines: 31 (evidence of who has done what)")
        await expect(item).not_to_contain_text("in progress")
        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Save receipt").click()
        receipt = json.loads(await read(await saving.value, tmp_path))
        assert (receipt["user"], receipt["state"], receipt["erased"][0]["count"]) == ("<b>ada</b>", "done", 12)
        await console.check_accessibility()


@pytest.mark.nightly
async def test_what_is_held_is_not_erased_until_it_is_released(opening: Opening) -> None:
    async with opening(place="#page=data") as console:
        page, data = console.page, console.suite.script.data
        await fill(page, "Hold", name="ada", reason="matter 12")
        await page.get_by_role("button", name="Place hold").click()
        item = page.get_by_role("list", name="Holds").locator("> li")
        await expect(item).to_contain_text("user ada")
        await expect(item).to_contain_text("matter 12")
        await fill(page, "Erase", name="ada")
        await console.confirm("Erase…", "Erase")
        await expect(page.get_by_role("alert").filter(has_text="user ada is held")).to_be_visible()
        await console.confirm("Release: user ada", "Release")
        await expect(page.get_by_text("No holds.")).to_be_visible()
        assert data.holds[0].released_at
        await fill(page, "Hold", what="tenant", name="default", reason="matter 13")
        await page.get_by_role("button", name="Place hold").click()
        await expect(item).to_contain_text("tenant default")
