"""The console of a scripted facade, open in a browser."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import ConsoleMessage, Page

from tests.support.console.scripted import Suite

TEST_S = 300
"""No test may take longer."""

WAIT_MS = 60_000
"""What a test waits for has come by then, on a busy machine too, or does not come."""


@dataclass(frozen=True)
class Console:
    """An open page, and the scripts behind it."""

    page: Page
    suite: Suite
    problems: list[str]
    """Errors that the page has reported; none may be left at the end."""

    async def ask(self, message: str = "hi") -> None:
        """Type a question and send it."""
        await self.page.fill("#message", message)
        await self.page.keyboard.press("Enter")

    async def go(self, name: str) -> None:
        """Follow the link of a page in the side bar, which is a drawer on a phone."""
        menu = self.page.get_by_role("button", name="Menu")
        if await menu.is_visible():
            await menu.click()
        pages = self.page.get_by_role("navigation", name="Pages")
        link = pages.locator("a").filter(has_text=re.compile(f"^{name}"))
        if not await link.is_visible():
            await pages.get_by_text("Operate").click()
        await link.click()

    async def text(self, selector: str) -> str:
        """What an element says; it must be the only one."""
        return await self.page.locator(selector).inner_text()

    async def confirm(self, button: str, action: str) -> None:
        """Press a button, and the one of the dialog that it opens."""
        await self.page.get_by_role("button", name=button).click()
        await self.page.get_by_role("dialog").get_by_role("button", name=action).click()

    async def check_accessibility(self, **given: Any) -> None:
        """Raise AssertionError for what axe objects to."""
        results = await Axe().run(self.page, **given)
        assert results.violations_count == 0, results.generate_report()


Opening = Callable[..., AbstractAsyncContextManager[Console]]


def collect_errors(page: Page) -> list[str]:
    """Collect the page's uncaught errors and console errors, such as refusals by its security policy."""
    problems: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        # An answer that is no success is reported too, by the browser itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            problems.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: problems.append(str(error)))
    return problems


async def tab_to(page: Page, name: str, *, key: str = "Shift+Tab") -> None:
    """Press `key` until the focus is on the control with that name, which must be visible at each step."""
    for _ in range(20):
        await page.keyboard.press(key)
        focused = page.locator(":focus")
        assert await focused.evaluate("(element) => getComputedStyle(element).outlineStyle") != "none"
        if (await focused.inner_text()).strip() == name:
            return
    raise AssertionError(f"{name!r} cannot be reached")
