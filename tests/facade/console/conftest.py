"""One Chromium for all tests of the console, and a way to open the console of a scripted facade in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, expect

from tests.facade.console.scripted import Memory, Orchestrator, Story, Suite, Tools, serving
from tests.support.chromium import open_browser

TEST_S = 300
"""No test may take longer."""

WAIT_MS = 60_000
"""What a test waits for has come by then, on a busy machine too, or does not come."""

expect.set_options(timeout=WAIT_MS)


@dataclass(frozen=True)
class Console:
    """An open page, and the scripts behind it."""

    page: Page
    suite: Suite
    problems: list[str]
    """What the page has reported as errors; none may be left at the end."""

    async def ask(self, message: str = "hi") -> None:
        """Type a question and send it."""
        await self.page.fill("#message", message)
        await self.page.keyboard.press("Enter")

    async def text(self, selector: str) -> str:
        """What an element says; it must be the only one."""
        return await self.page.locator(selector).inner_text()


Opening = Callable[..., AbstractAsyncContextManager[Console]]


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
            problems = watched(page)
            await page.goto(f"{suite.url}/{place}")
            await page.locator("#agent option").nth(1).wait_for(state="attached")
            yield Console(page, suite, problems)
            assert problems == []

    return shown


def watched(page: Page) -> list[str]:
    """What the page reports from now on: uncaught errors, and console errors such as a refusal by its policy."""
    problems: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        # An answer that is no success is reported too, by the browser itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            problems.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: problems.append(str(error)))
    return problems
