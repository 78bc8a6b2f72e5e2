"""A real browser for tests: the system's Chromium, else the one that Playwright has installed."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, async_playwright


@asynccontextmanager
async def open_browser(untried: str) -> AsyncGenerator[Browser]:
    """Open the browser, or skip with a notice that names what is not tested."""
    async with async_playwright() as playwright:
        program = shutil.which("chromium") or playwright.chromium.executable_path
        if shutil.which(program) is None:
            pytest.skip(f"NOTICE: Chromium is not installed: {untried} in a browser")
        browser = await playwright.chromium.launch(executable_path=program)
        yield browser
        await browser.close()
