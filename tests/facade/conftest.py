"""One Chromium for all browser tests of a process, and a way to open the console of a scripted facade in it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.chromium import open_browser
from tests.support.console.page import TEST_S, WAIT_MS, Console, Opening, collect_errors
from tests.support.console.scripted import Memory, Orchestrator, Story, Tools, serving

expect.set_options(timeout=WAIT_MS)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncGenerator[Browser]:
    async with open_browser("the console is NOT tested") as browser:
        yield browser


@pytest.fixture
def opening(browser: Browser, tmp_path: Path) -> Opening:
    """Open the console; what the page reports as an error fails the test."""

    @asynccontextmanager
    async def shown(
        story: Story | None = None,
        *,
        script: Orchestrator | None = None,
        memory: Memory | None = None,
        place: str = "",
        **context: Any,
    ) -> AsyncGenerator[Console]:
        script = script or Orchestrator(query=story.steps if story else ())
        async with (
            asyncio.timeout(TEST_S),
            serving(tmp_path, script=script, memory=memory or Memory(), tools=Tools()) as suite,
            await browser.new_context(**context) as pages,
        ):
            pages.set_default_timeout(WAIT_MS)
            page = await pages.new_page()
            problems = collect_errors(page)
            await page.goto(f"{suite.url}/{place}")
            await page.locator("#agent option").nth(1).wait_for(state="attached")
            yield Console(page, suite, problems)
            assert problems == []

    return shown
