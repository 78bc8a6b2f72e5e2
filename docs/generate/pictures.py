"""Draws the guides' pictures: `python -m docs.generate.pictures` takes screenshots of a demonstration's console.

It needs a font with emoji, for agents' icons: `apt-get install fonts-noto-color-emoji`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from playwright.async_api import Page, async_playwright

GUIDES = Path(__file__).parents[1] / "guides"
EXAMPLES = Path(__file__).parents[2] / "examples"
READY = re.compile(r"ready: (http://\S+)")
START_TIMEOUT_S = 120.0
SIZE = {"width": 1000, "height": 640}

QUESTIONS = [f"Search for {subject}" for subject in ("water mills", "windmills", "tide mills", "horse mills")]
FACTS = {
    "boat": "My boat is called Ada.",
    "home town": "Lives in Oslo.",
    "tone": "Prefers short answers.",
}


async def main() -> None:
    async with _demonstration() as url, aiohttp.ClientSession(url) as http, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = await browser.new_page(viewport=SIZE, color_scheme="light")  # pyright: ignore[reportArgumentType] - it is a size
        await _draw_console(http, page, url)
        await _draw_context(http, page, url)
        await _draw_facts(http, page, url)
        await browser.close()


async def _draw_console(http: aiohttp.ClientSession, page: Page, url: str) -> None:
    chat_id = await _ask(http, "assistant", "What is the weather in Paris today?")
    await page.goto(f"{url}/#chat={chat_id}")
    await page.get_by_text("The weather in Paris").first.wait_for()
    await page.screenshot(path=GUIDES / "console.png")


async def _ask(http: aiohttp.ClientSession, agent: str, message: str, chat_id: str = "") -> str:
    """Ask an agent and return the chat's id once the run has ended."""
    body = {"message": message, "agentKey": agent, "stream": False} | ({"chatId": chat_id} if chat_id else {})
    async with http.post("/api/query", json=body) as response:
        return (await response.json())["data"]["chatId"]


async def _draw_context(http: aiohttp.ClientSession, page: Page, url: str) -> None:
    chat_id = ""
    for message in (*QUESTIONS, "/compact", "Search for ship mills"):
        chat_id = await _ask(http, "archivist", message, chat_id)
    await page.goto(f"{url}/#chat={chat_id}")
    await page.get_by_role("button", name="Context").click()
    await page.get_by_role("dialog").get_by_text("Summary").first.wait_for()
    await page.screenshot(path=GUIDES / "context.png")


async def _draw_facts(http: aiohttp.ClientSession, page: Page, url: str) -> None:
    for topic, text in FACTS.items():
        async with http.post("/api/facts", json={"text": text, "topic": topic}) as response:
            response.raise_for_status()
    await page.goto(url)
    await page.get_by_role("button", name="Facts").click()
    await page.get_by_role("dialog").get_by_text(FACTS["boat"]).first.wait_for()
    await page.screenshot(path=GUIDES / "facts.png")


@asynccontextmanager
async def _demonstration() -> AsyncGenerator[str]:
    """Run the suite with the simulated model over an empty folder, and yield its URL."""
    ports = ("--port", "0", "--grpc-port", "0", "--simulate-port", "0")
    with tempfile.TemporaryDirectory() as data_dir:
        options = ("up", "--simulate", *ports, "--config-dir", str(EXAMPLES), "--data-dir", data_dir)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headrace.cli",
            *options,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                yield await _read_address(process)
        finally:
            process.terminate()
            await process.wait()


async def _read_address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if found := READY.search(line.decode()):
            return found[1]
    raise SystemExit("the suite did not start; `make up` says why")


if __name__ == "__main__":
    asyncio.run(main())
