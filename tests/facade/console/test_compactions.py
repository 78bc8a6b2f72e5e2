"""Compactions in the console: one between runs is a boundary, and a nearly full chat says so."""

import pytest
from playwright.async_api import expect

from headrace.v1 import agent_pb2
from tests.support.console.page import Opening
from tests.support.console.scripted import Story, two_runs
from tests.support.facade.scripted import CHAT, RUN

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_compaction_between_runs_is_a_boundary_between_them(opening: Opening) -> None:
    memory = two_runs()
    done = agent_pb2.CompactionComplete(chat_id=CHAT, pre_tokens=9000, post_tokens=900, files_included=["a.py"])
    at = next(index for index, event in enumerate(memory.events) if index and event.HasField("request_query"))
    memory.events.insert(at, agent_pb2.AgentDelta(timestamp=1, compaction_complete=done))
    async with opening(memory=memory, place=f"#chat={CHAT}") as console:
        await expect(console.page.locator("#runs > .compaction")).to_have_text(
            "Older messages were summarised: 9,000 tokens → 900 tokens (10%) · files kept: a.py"
        )
        await expect(console.page.locator("#runs > *")).to_have_count(3)
        await expect(console.page.locator("#runs > .run + .compaction + .run")).to_have_count(1)


async def test_a_nearly_full_chat_has_a_button_that_compacts_it(opening: Opening) -> None:
    notice = agent_pb2.RunNotice(run_id=RUN, code="CHAT_NEARLY_FULL", message="the chat is 85 % full")
    async with opening(Story().add(run_notice=notice).content("Yes.").complete()) as console:
        await console.ask()
        button = console.page.get_by_role("button", name="Compact now")
        await expect(console.page.locator(".line.notice")).to_contain_text("the chat is 85 % full")
        await button.click()
        await expect(console.page.locator(".run")).to_have_count(2)
        asked = [request for request in console.suite.script.requests if isinstance(request, agent_pb2.QueryRequest)]
        assert [request.message for request in asked] == ["hi", "/compact"]
        await expect(button.locator("visible=true")).to_have_count(1)  # the last run's
