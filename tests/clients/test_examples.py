"""Examples that use agents in other programs: a React page on AG-UI in a real browser, and the MCP Inspector."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, expect

from tests.support.chromium import open_browser
from tests.support.clients.catalogue import ROOT
from tests.support.clients.programs import check_row, find_version, get_environment, run_program
from tests.support.timing import within

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.nightly]

needs_node = pytest.mark.skipif(
    shutil.which("npm") is None, reason="NOTICE: Node is not installed: its examples are not tried"
)

PROGRAMS = ROOT / "examples" / "clients"
WAIT_MS = 60_000

WATCH_LENGTHS = """() => {
    window.lengths = new Set();
    const note = () => lengths.add([...document.querySelectorAll(".assistant")].at(-1)?.textContent.length);
    new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


@asynccontextmanager
async def show_page() -> AsyncGenerator[Page]:
    """Run the example and open the page whose address it prints."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, PROGRAMS / "show_ag_ui.py", "0"), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    try:
        line = (await program.stdout.readline()).decode()
        async with open_browser("the page on AG-UI is NOT tried") as browser, await browser.new_page() as page:
            page.set_default_timeout(WAIT_MS)
            await page.goto(line.removeprefix("page: ").strip())
            yield page
    finally:
        program.terminate()
        await program.wait()


async def ask(page: Page, agent: str, message: str) -> None:
    await page.get_by_label("Agent").select_option(agent)
    await page.get_by_label("Message", exact=True).fill(message)
    await page.get_by_role("button", name="Send").click()


@needs_node
async def test_the_page_on_ag_ui_shows_calls_and_answers_gates() -> None:
    get_environment("ag_ui")
    async with within(300), show_page() as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.evaluate(WATCH_LENGTHS)
        await ask(page, "assistant", "What is the weather in Paris?")
        await expect(page.locator(".tool summary")).to_have_text("mock_city_weather ✓", timeout=WAIT_MS)
        await expect(page.locator(".assistant").last).to_contain_text("The weather in Paris", timeout=WAIT_MS)
        assert await page.evaluate("lengths.size") > 3, "the answer is streamed"
        assert "Paris" in (await page.locator(".tool code").text_content() or "")

        await ask(page, "publisher", "Publish that the mill is open")
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator(".tool pre")).to_contain_text("added to outputs/notes.md", timeout=WAIT_MS)
        await expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=WAIT_MS)

        await ask(page, "booker", "Book a table for two")
        await page.get_by_label("choice").fill("yes")
        await page.get_by_role("button", name="Answer").click()
        await expect(page.locator(".assistant").last).to_contain_text("choice yes", timeout=WAIT_MS)
        assert problems == []
    check_row("@ag-ui/client in a page of React", find_version(PROGRAMS / "ag-ui/package.json", '"@ag-ui/client": "'))


@needs_node
async def test_the_inspector_calls_an_agent_of_the_examples() -> None:
    get_environment("node")
    call = ["--method", "tools/call", "--tool-name", "assistant", "--tool-arg", "message=What time is it in Paris?"]
    answer = await run_program([sys.executable, PROGRAMS / "show_mcp_inspector.py", *call])
    assert json.loads(answer)["structuredContent"]["finishReason"] == "stop"


async def test_an_agent_of_the_a2a_sdk_calls_ours_and_is_called_by_ours() -> None:
    get_environment("a2a")
    output = await run_program([sys.executable, PROGRAMS / "show_a2a.py"])
    answer = output.rpartition("[reasoning]")[2]
    for city in ("Paris", "Tokyo"):
        assert f"[stylist: say what I shall wear in {city}] [reasoning] I ask the weather agent." in output
        assert f"The weather in {city}" in answer
    assert answer.count("My advice: take a coat") == 2
