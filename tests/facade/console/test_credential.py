"""Signing in to a suite that requires a credential."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.console.page import TEST_S, WAIT_MS, collect_errors
from tests.support.tenants.suite import ADA, KEYS, serving_tenants

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_console_requests_an_api_key_and_keeps_it_for_the_tab(browser: Browser, tmp_path: Path) -> None:
    async with asyncio.timeout(TEST_S), serving_tenants(tmp_path) as suite, await browser.new_context() as pages:
        pages.set_default_timeout(WAIT_MS)
        page = await pages.new_page()
        problems = collect_errors(page)
        await page.goto(suite.url)
        for key in ("wrong", KEYS[ADA]):
            await expect(page.locator("#sign-in")).to_be_visible()
            await page.get_by_label("API key").fill(key)
            await page.get_by_role("button", name="Sign in").click()
            if key == "wrong":
                await expect(page.get_by_role("alert")).to_contain_text("was refused: the credential is not valid here")
                await expect(page.get_by_label("API key")).to_have_accessible_description(re.compile("was refused: .*"))
        await expect(page.locator("#agent option", has_text="plain")).to_be_attached()
        await expect(page.locator("#sign-in")).to_be_hidden()
        await page.fill("#message", "hello")
        await page.keyboard.press("Enter")
        await expect(page.locator(".answer")).to_contain_text("one two")
        await page.reload()
        await expect(page.locator(".answer")).to_contain_text("one two")
        other = await (await browser.new_context()).new_page()
        await other.goto(page.url)
        await expect(other.locator("#sign-in")).to_be_visible()
        await expect(other.locator(".answer")).to_have_count(0)
        await other.context.close()
        assert problems == []


@pytest.mark.nightly
async def test_the_authorization_return_page_asks_for_the_users_key(browser: Browser, tmp_path: Path) -> None:
    async with asyncio.timeout(TEST_S), serving_tenants(tmp_path) as suite, await browser.new_context() as pages:
        pages.set_default_timeout(WAIT_MS)
        page = await pages.new_page()
        problems = collect_errors(page)
        await page.goto(f"{suite.url}/console/authorized.html?state=s1&code=c1&iss=https%3A%2F%2Fa.example")
        await page.get_by_label("API key").fill(KEYS[ADA])
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("status")).to_contain_text("is not on its way")
        await expect(page).to_have_url(f"{suite.url}/console/authorized.html")  # the code is in no history
        await expect(page.get_by_role("link", name="Go to the inbox")).to_have_attribute("href", "/#page=inbox")
        assert [problem for problem in problems if "404" not in problem and "401" not in problem] == []
