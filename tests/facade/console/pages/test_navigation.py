"""Navigation between the pages: links, URLs, the keyboard, screen readers, narrow windows."""

import asyncio
import re

import pytest
from playwright.async_api import Request, expect

from headrace.v1 import agent_pb2
from tests.support.console.page import Opening, tab_to
from tests.support.console.schedules import make_schedules
from tests.support.console.scripted import Orchestrator, Story, make_gates, make_two_runs
from tests.support.facade.scripted import CHAT

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_page_urls_survive_reload_and_back(opening: Opening) -> None:
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        page, links = console.page, console.page.get_by_role("navigation", name="Pages")
        await expect(page.locator(".run")).to_have_count(2)
        await expect(page).to_have_title("Headrace")
        await console.go("Spend")
        heading = page.get_by_role("heading", name="Cost of model calls")
        await expect(heading).to_be_focused()
        await expect(page).to_have_title("Spend – Headrace")
        await expect(page).to_have_url(re.compile("#page=spend$"))
        await expect(links.locator("[aria-current=page]")).to_have_text("Spend")
        await expect(page.locator("#message")).to_be_hidden()
        await page.reload()
        await expect(heading).to_be_visible()
        await page.go_back()
        await expect(page.locator(".run")).to_have_count(2)
        await expect(page.locator("#message")).to_be_focused()
        await expect(heading).to_have_count(0)
        await page.go_forward()
        await expect(heading).to_be_visible()
        await console.go("Chats")
        await expect(page).to_have_url(re.compile(f"#chat={CHAT}$"))
        await expect(page.locator(".run")).to_have_count(2)


@pytest.mark.nightly
async def test_an_unknown_page_shows_the_chats(opening: Opening) -> None:
    async with opening(place="#page=toString") as console:
        await expect(console.page.locator("#message")).to_be_visible()


@pytest.mark.nightly
async def test_a_run_continues_while_another_page_is_open(opening: Opening) -> None:
    script = Orchestrator()
    script.query = Story().content("one").wait(script.cancelled).cancelled().steps
    async with opening(script=script) as console:
        await console.ask()
        await expect(console.page.locator(".answer")).to_have_text("one")
        await console.go("Spend")
        await expect(console.page.get_by_role("heading", name="Cost of model calls")).to_be_visible()
        script.cancelled.set()
        # If the run set the chat's URL now, it would close the page.
        await expect(console.page.locator(".end")).to_contain_text("Stopped.")
        await expect(console.page).to_have_url(re.compile("#page=spend$"))
        await console.go("Chats")
        await expect(console.page.locator(".end")).to_be_visible()
        await expect(console.page).to_have_url(re.compile("#chat="))
        assert len([request for request in script.requests if isinstance(request, agent_pb2.QueryRequest)]) == 1


@pytest.mark.nightly
async def test_a_pages_code_is_loaded_when_it_is_opened(opening: Opening) -> None:
    async with opening() as console:
        loaded: list[str] = []

        def note(request: Request) -> None:
            loaded.append(request.url.rpartition("/console/")[2])

        console.page.on("request", note)
        await console.page.reload()
        await expect(console.page.locator("#agent option")).to_have_count(3)
        assert "main.js" in loaded
        assert [name for name in loaded if re.match(r"pages/(?!catalogue)|styles/(pages|spend)", name)] == []
        await console.go("Spend")
        await expect(console.page.get_by_text("No spending")).to_be_visible()
        assert {"pages/spend.js", "styles/pages.css", "styles/spend.css"} <= {*loaded}


FIRST_BYTES_MAX = 200_000
"""All that the first chat page loads, over the wire."""


async def test_the_first_page_is_light(opening: Opening) -> None:
    sizes = "performance.getEntriesByType('resource').map(({ name, transferSize }) => [name, transferSize])"
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        await expect(console.page.locator(".run")).to_have_count(2)
        loaded = await console.page.evaluate(sizes)
    assert sum(size for _, size in loaded) < FIRST_BYTES_MAX
    assert [name for name, _ in loaded if re.search(r"vendor/(?!marked)", name)] == []


@pytest.mark.nightly
async def test_a_page_that_fails_to_load_shows_an_error_and_is_retried(opening: Opening) -> None:
    async with opening() as console:
        await console.page.route("**/pages.css", lambda route: asyncio.ensure_future(route.abort()))
        await console.go("Spend")
        await expect(console.page.get_by_role("alert")).to_contain_text("The page could not be loaded")
        await console.page.unroute("**/pages.css")
        await console.go("Chats")
        await console.go("Spend")
        await expect(console.page.get_by_text("No spending")).to_be_visible()


@pytest.mark.nightly
async def test_pages_are_reached_by_keyboard(opening: Opening) -> None:
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        page = console.page
        await expect(page.locator(".run")).to_have_count(2)
        await page.get_by_role("link", name="Skip to the content").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#message")).to_be_focused()
        await expect(page.locator(".run")).to_have_count(2)
        await page.get_by_role("link", name="Skip to the content").focus()
        await tab_to(page, "Operate", key="Tab")
        await page.keyboard.press("Enter")
        await tab_to(page, "Spend", key="Tab")
        await page.keyboard.press("Enter")
        heading = page.get_by_role("heading", name="Cost of model calls")
        await expect(heading).to_be_focused()
        await page.get_by_role("link", name="Skip to the content").focus()
        await page.keyboard.press("Enter")
        await expect(heading).to_be_focused()


@pytest.mark.nightly
async def test_landmarks_are_named(opening: Opening) -> None:
    async with opening(place="#page=spend") as console:
        await expect(console.page.get_by_text("No spending")).to_be_visible()
        tree = await console.page.locator("body").aria_snapshot()
        for line in ("- banner:", '- navigation "Pages":', "- main:", '- heading "Cost of model calls" [level=2]'):
            assert line in tree
        assert tree.count("- main:") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_is_cut_off_on_a_phone(opening: Opening, scheme: str) -> None:
    # axe is injected, which the page's own policy would rightly refuse.
    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": scheme, "bypass_csp": True}
    script, memory = Orchestrator(gates=make_gates()), make_two_runs()
    memory.schedules = await make_schedules()
    await memory.webhooks.create(f"https://hooks.example.com/{'long' * 30}")
    async with opening(script=script, memory=memory, place=f"#chat={CHAT}", **phone) as console:
        menu = console.page.get_by_role("button", name="Menu")
        await menu.click()
        await console.page.get_by_text("Operate").click()
        names = await console.page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
        await console.check_accessibility(options={"rules": {"skip-link": {"enabled": False}}})
        await console.page.keyboard.press("Escape")
        await expect(menu).to_be_focused()
        assert len(names) == 12
        for name in [re.sub(r"\W.*", "", name.strip()) for name in names]:
            await console.go(name)
            await expect(console.page.locator("#side")).to_be_hidden()
            await menu.click()
            link = console.page.locator("#pages [aria-current=page]")
            await expect(link).to_contain_text(name)
            await expect(link).to_be_in_viewport()
            await console.page.keyboard.press("Escape")
            await expect(console.page.get_by_role("main")).to_be_in_viewport()
            await expect(console.page.get_by_role("main").get_by_role("heading").first).to_be_visible()
            wide = """() => [document.documentElement, document.getElementById("page")].some(
                ({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)"""
            assert not await console.page.evaluate(wide), name
            # It takes addresses of ours that are scrolled out of sight for links to parts of the page.
            await console.check_accessibility(options={"rules": {"skip-link": {"enabled": False}}})
