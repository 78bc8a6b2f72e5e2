"""Shared chats in the browser: participants, authors of questions, and actions that are not offered to others."""

import pytest
from playwright.async_api import expect

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, memory_pb2
from tests.support.console.page import Opening
from tests.support.console.scripted import Memory, Orchestrator, Story
from tests.support.facade.scripted import RUN

pytestmark = pytest.mark.asyncio(loop_scope="session")

ADAS = "55555555-5555-4555-8555-555555555555"
OTHER = "66666666-6666-4666-8666-666666666666"


def make_memory(access: str) -> Memory:
    """Return a memory with Ada's chat, in which the page's user has asked a question too."""
    events: list[agent_pb2.AgentDelta] = []
    for run_id, user in ((RUN, "ada"), (OTHER, "default")):
        story = Story(f"a question of {user}", run_id=run_id)
        story.events[0].request_query.by = user
        text = agent_pb2.ContentSnapshot(content_id=f"{run_id}_c_1", run_id=run_id, text="an answer")
        events += story.add(content_snapshot=text).complete().events
    return Memory(events=events, others={ADAS: "of ada"}, access=access)


@pytest.mark.nightly
async def test_the_owner_sets_the_access_of_each_participant(opening: Opening) -> None:
    memory = Memory(shares=memory_pb2.ShareChatRequest(shared_with=["tenant"], participants=["user:cleo"]))
    async with opening(memory=memory) as console:
        dialog = console.page.get_by_role("dialog")
        await console.page.get_by_role("button", name="Share 水车 怎么").click()
        await expect(dialog.locator("li span")).to_have_text(["tenant", "user:cleo"])
        await expect(dialog.get_by_label("Access of user:cleo")).to_have_value("take_part")
        await console.check_accessibility()
        await dialog.get_by_role("button", name="Stop sharing with tenant").click()
        await dialog.get_by_label("Access of user:cleo").select_option("read")
        await dialog.get_by_label("With", exact=True).fill("user:bob")
        await dialog.get_by_label("Access level").select_option("take_part")
        memory.refusal = InvalidRequest.of("participants", "must be names")
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("must be names")
        memory.refusal = None
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog).to_have_count(0)
    assert ([*memory.shares.shared_with], [*memory.shares.participants]) == (["user:cleo"], ["user:bob"])


async def test_a_participant_asks_and_sees_the_author_of_each_question(opening: Opening) -> None:
    script = Orchestrator(query=Story("and I?", run_id=OTHER).content("you too").complete().steps)
    async with opening(memory=make_memory("take_part"), script=script) as console:
        link = console.page.get_by_role("region", name="Shared with you").get_by_role("link")
        await expect(link).to_contain_text("of ada")
        await expect(link).to_contain_text("ada · helper")
        await expect(console.page.get_by_role("button", name="Share of ada")).to_have_count(0)
        await link.click()
        await expect(console.page.locator(".question .speaker")).to_have_text(["ada"])
        await expect(console.page.locator(".question h2").nth(1)).to_have_text("You")
        await expect(console.page.get_by_role("button", name="Fork from here")).to_have_count(2)
        for name in ("Edit question", "Pin question"):
            await expect(console.page.get_by_role("button", name=name)).to_have_count(0)
        await console.ask("and I?")
        await expect(console.page.locator(".answer").last).to_contain_text("you too")
        [query] = [request for request in script.requests if isinstance(request, agent_pb2.QueryRequest)]
        assert query.chat_id == ADAS


@pytest.mark.nightly
async def test_a_read_only_participant_cannot_ask(opening: Opening) -> None:
    async with opening(memory=make_memory("read"), place=f"#chat={ADAS}") as console:
        await expect(console.page.locator("#message")).to_be_disabled()
        await expect(console.page.get_by_placeholder("only read this chat")).to_be_visible()
        await console.page.get_by_role("button", name="New chat").click()
        await expect(console.page.locator("#message")).to_be_enabled()
