"""The cassette player: it opens a file, plays it by its timestamps, seeks by keyboard, and sends nothing."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.golden.__main__ import CASSETTES
from tests.support.console.page import Console, Opening

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOL = CASSETTES / "tool.cassette"


async def open_film(console: Console, file: Path) -> Locator:
    """Return the page's main region with the cassette at its beginning."""
    await console.go("Recordings")
    main = console.page.get_by_role("main")
    await main.get_by_label("Cassette").set_input_files(file)
    return main


async def test_a_cassette_plays_and_seeks_by_keyboard_and_sends_nothing(opening: Opening) -> None:
    # axe is injected, which the page's own policy would rightly refuse.
    async with opening(bypass_csp=True) as console:
        main = await open_film(console, TOOL)
        play, slider, answer = main.get_by_role("button", name="Play"), main.get_by_role("slider"), main.locator(".run")
        await expect(play).to_be_focused()
        sent: list[tuple[str, str]] = []
        console.page.on("request", lambda request: sent.append((request.method, request.url)))
        await main.get_by_role("combobox", name="Speed").select_option("64")
        await play.click()
        await expect(answer).to_contain_text("The weather in Paris")
        await expect(play).to_be_visible()
        await slider.focus()
        await console.page.keyboard.press("Home")
        await expect(slider).to_have_attribute("aria-valuetext", re.compile("^0.0 s of .* s, event 0: nothing yet$"))
        await expect(answer).not_to_contain_text("Paris")
        await main.get_by_role("button", name="One event forward").click()
        await expect(answer).to_contain_text("What is the weather in Paris today?")
        await expect(answer).not_to_contain_text("The weather in Paris")
        await slider.focus()
        await console.page.keyboard.press("End")
        await expect(answer).to_contain_text("The weather in Paris")
        await expect(main.get_by_role("button", name="Fork from here")).to_have_count(0)
        await expect(main.get_by_role("button", name="Trace")).to_have_count(1)
        await console.check_accessibility()
        run_id = json.loads(TOOL.read_text().splitlines()[0])["runId"]
        assert [url for method, url in sent if method != "GET" or run_id in url] == []


@pytest.mark.nightly
async def test_reduced_motion_shows_whole_texts_at_once(opening: Opening, tmp_path: Path) -> None:
    event = {"runId": "r", "timestamp": 1, "contentId": "r_c_1"}
    events = [
        (0, {"type": "run.start", "chatId": "c", "agentKey": "helper"}),
        (1, {"type": "content.start"}),
        (2, {"type": "content.delta", "delta": "One "}),
        (100_000, {"type": "content.delta", "delta": "two."}),
        (100_001, {"type": "content.end"}),
    ]
    lines = [{"cassette": 1, "agentKey": "helper", "at": 1}]
    lines += [{"at": at, "event": event | given | {"seq": seq}} for seq, (at, given) in enumerate(events, 1)]
    file = tmp_path / "slow.cassette"
    file.write_text("\n".join(map(json.dumps, lines)))
    async with opening(reduced_motion="reduce") as console:
        main = await open_film(console, file)
        await main.get_by_role("button", name="Play").click()
        await expect(main.locator(".run")).to_contain_text("One two.")
        await main.get_by_role("button", name="Pause").click()
        await expect(main.get_by_role("button", name="Play")).to_be_visible()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hello", "Line 1: not a JSON object."),
        ('{"a": 1}', "Line 1: not a cassette."),
        ('{"cassette": 9}', "Line 1: version 9 is not supported; this page supports 1."),
        ('{"cassette": 1}\n{"at": 1, "event": {}}', "Line 2: not an event."),
        ('{"cassette": 1}\n\n{"query": {}}', "The cassette has no events."),
    ],
)
async def test_an_invalid_cassette_is_refused_with_its_line(
    opening: Opening, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "wrong.cassette"
    file.write_text(text)
    async with opening() as console:
        main = await open_film(console, file)
        await expect(main.get_by_role("alert")).to_have_text(problem)
        await expect(main.get_by_role("slider")).to_be_hidden()
