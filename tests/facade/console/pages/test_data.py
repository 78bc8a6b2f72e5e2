"""The user data page: saving an archive, an erasure with its receipt, holds."""

import json
from pathlib import Path

import pytest
from playwright.async_api import Download, Locator, Page, expect

from tests.support.console.page import Opening
from tests.support.facade.data import ARCHIVE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def read(download: Download, folder: Path) -> bytes:
    path = folder / download.suggested_filename
    await download.save_as(path)
    return path.read_bytes()


async def fill(page: Page, title: str, **values: str) -> Locator:
    """Open the form, fill its fields in and return it."""
    await page.get_by_role("button", name=title).click()
    form = page.get_by_role("dialog", name=title)
    for label, value in values.items():
        await form.get_by_role("textbox", name=label.capitalize().replace("_", " ")).fill(value)
    return form


@pytest.mark.nightly
async def test_an_archive_is_saved(opening: Opening, tmp_path: Path) -> None:
    async with opening(place="#page=data") as console:
        page = console.page
        form = await fill(page, "Export data", of_user="ada")
        async with page.expect_download() as saving:
            await form.get_by_role("button", name="Save archive").click()
        download = await saving.value
        assert download.suggested_filename == "ada.tar"
        assert await read(download, tmp_path) == ARCHIVE + b"ada"


async def test_a_user_is_erased_and_the_receipt_is_shown(opening: Opening, tmp_path: Path) -> None:
    async with opening(place="#page=data", bypass_csp=True) as console:
        page, data = console.page, console.suite.script.data
        await expect(page.get_by_text("No erasures.")).to_be_visible()
        form = await fill(page, "Erase data", user="<b>ada</b>", reason="ticket 4711")
        await form.get_by_role("button", name="Cancel").click()
        assert data.erasures == []
        form = await fill(page, "Erase data", user="<b>ada</b>", reason="ticket 4711")
        await expect(form).to_contain_text("This cannot be undone.")
        await form.get_by_role("button", name="Erase").click()
        rows = page.get_by_role("region", name="Erasures").locator("tbody tr")
        await expect(rows).to_contain_text(["user <b>ada</b>in progressticket 4711"])
        data.finish()
        await expect(rows).to_contain_text(["user <b>ada</b>done"])
        await page.get_by_role("button", name="user <b>ada</b>", exact=True).click()
        await expect(rows.last).to_contain_text("chats · 12")
        await expect(rows.last).to_contain_text("runs in others chats · 2")
        await expect(rows.last).to_contain_text("audit lines · 31 · evidence of who has done what")
        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Save receipt").click()
        receipt = json.loads(await read(await saving.value, tmp_path))
        assert (receipt["user"], receipt["state"], receipt["erased"][0]["count"]) == ("<b>ada</b>", "done", 12)
        await console.check_accessibility()


@pytest.mark.nightly
async def test_data_under_a_hold_is_erased_only_after_the_release(opening: Opening) -> None:
    async with opening(place="#page=data") as console:
        page, data = console.page, console.suite.script.data
        form = await fill(page, "Place hold", user="ada", reason="matter 12")
        await form.get_by_role("button", name="Place hold").click()
        item = page.get_by_role("region", name="Holds").locator("tbody tr")
        await expect(item).to_contain_text(["user adamatter 12"])
        form = await fill(page, "Erase data", user="ada")
        await form.get_by_role("button", name="Erase").click()
        await expect(form.get_by_role("alert")).to_contain_text("user ada is held")
        await form.get_by_role("button", name="Cancel").click()
        await console.confirm("Release: user ada", "Release")
        await expect(page.get_by_text("No holds.")).to_be_visible()
        assert data.holds[0].released_at
        form = await fill(page, "Place hold", or_the_whole_tenant="default", reason="matter 13")
        await form.get_by_role("button", name="Place hold").click()
        await expect(item).to_contain_text("tenant default")
