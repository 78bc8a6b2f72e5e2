"""The console follows its chat in a real browser: others' questions appear by themselves, once."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from headrace.errors import ChatBusy
from headrace.v1 import agent_pb2
from tests.support.console.page import Opening, collect_errors
from tests.support.console.scripted import Orchestrator, Story, make_two_runs
from tests.support.facade.scripted import CHAT, RUN

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATER = "55555555-5555-4555-8555-555555555555"


async def test_a_question_from_one_tab_appears_once_in_both_tabs(opening: Opening) -> None:
    go_on = asyncio.Event()
    script = Orchestrator(query=Story("again?").begin_content().say("one ").wait(go_on).say("two").complete().steps)
    between = agent_pb2.CompactionComplete(chat_id=CHAT, pre_tokens=900, post_tokens=100)
    async with opening(script=script, memory=make_two_runs(), place=f"#chat={CHAT}") as first:
        second = await first.page.context.new_page()
        problems = collect_errors(second)
        await second.goto(f"{first.suite.url}/#chat={CHAT}")
        for page in (first.page, second):
            await expect(page.locator(".run")).to_have_count(2)
        await first.ask("again?")
        for page in (first.page, second):
            await expect(page.locator(".answer").last).to_have_text("one ")
            await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        go_on.set()
        await script.begin([agent_pb2.AgentDelta(compaction_complete=between)])
        await script.begin(Story("and from a schedule", run_id=LATER).content("three").complete().steps)
        for page in (first.page, second):
            await expect(page.locator(".answer").last).to_have_text("three")
            questions = ["question 1", "question 2", "again?", "and from a schedule"]
            await expect(page.locator(".question p")).to_have_text(questions)
            await expect(page.locator(".run").nth(2).locator(".answer")).to_have_text("one two")
            await expect(page.locator("#runs > .compaction")).to_contain_text("Older messages were summarised")
            await expect(page.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
        followed = [request.cursor for request in script.requests if isinstance(request, agent_pb2.FollowRequest)]
        assert followed == [first.suite.memory.cursor] * 2
        assert problems == []


async def set_hidden(page: Page, is_hidden: bool) -> None:
    code = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(code, is_hidden)


async def test_a_hidden_page_closes_its_stream_and_catches_up_when_shown(opening: Opening) -> None:
    script = Orchestrator()
    async with opening(script=script, memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        await script.first(agent_pb2.FollowRequest)
        await set_hidden(console.page, True)
        await script.begin(Story("later", run_id=LATER).content("three").complete().steps)
        await expect(console.page.locator(".run")).to_have_count(2)
        await set_hidden(console.page, False)
        await expect(console.page.locator(".answer").last).to_have_text("three")
        await expect(console.page.locator(".run")).to_have_count(3)
        followed = [request.cursor for request in script.requests if isinstance(request, agent_pb2.FollowRequest)]
        assert followed == [console.suite.memory.cursor] * 2


async def test_a_refused_question_shows_its_reason_and_following_continues(opening: Opening) -> None:
    script = Orchestrator(query=[ChatBusy("the chat has a run")])
    async with opening(script=script, memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        await console.ask("now?")
        await expect(console.page.get_by_role("alert").filter(has_text="the chat has a run")).to_be_visible()
        await script.begin(Story("later", run_id=LATER).content("three").complete().steps)
        await expect(console.page.locator(".answer").last).to_have_text("three")
        await expect(console.page.locator(".question p")).to_have_text(["question 1", "question 2", "now?", "later"])


async def test_a_compaction_between_runs_is_shown_between_them(opening: Opening) -> None:
    memory = make_two_runs()
    compaction = agent_pb2.CompactionComplete(chat_id=CHAT, pre_tokens=9000, post_tokens=900, files_included=["a.py"])
    at = next(index for index, event in enumerate(memory.events) if index and event.HasField("request_query"))
    memory.events.insert(at, agent_pb2.AgentDelta(timestamp=1, compaction_complete=compaction))
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
        queries = [request for request in console.suite.script.requests if isinstance(request, agent_pb2.QueryRequest)]
        assert [request.message for request in queries] == ["hi", "/compact"]
        await expect(button.locator("visible=true")).to_have_count(1)  # the last run's
