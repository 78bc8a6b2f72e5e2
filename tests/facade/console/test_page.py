"""The console page outside the runs: chats, files, the trace, the keyboard, colours, screen readers."""

import asyncio
import json
import re
from typing import Any

import pytest
from playwright.async_api import expect

from headrace.errors import ChatBusy
from headrace.v1 import agent_pb2, memory_pb2
from tests.support.console.page import Opening, tab_to
from tests.support.console.scripted import FORKED, OTHER, Memory, Orchestrator, Story, make_two_runs
from tests.support.facade.scripted import CHAT, RUN

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_opening_a_chat_from_the_list_shows_its_runs(opening: Opening) -> None:
    async with opening(memory=make_two_runs()) as console:
        await console.page.get_by_role("button", name="Show more").click()
        await expect(console.page.locator("#chats li")).to_have_count(2)
        await console.page.get_by_role("link", name="水车 怎么").click()
        await expect(console.page.locator(".question p")).to_have_text(["question 1", "question 2"])
        await expect(console.page.locator(".answer em")).to_have_text(["1", "2"])
        await expect(console.page.locator(".tool").first).to_contain_text("Paris")
        await expect(console.page.locator("#chats [aria-current=page]")).to_contain_text("水车 怎么")
        await console.page.get_by_role("button", name="New chat").click()
        await expect(console.page.locator(".run")).to_have_count(0)
        await console.page.go_back()
        await expect(console.page.locator(".run")).to_have_count(2)


async def test_a_new_user_is_offered_an_agent_with_sample_questions(opening: Opening) -> None:
    analyst = agent_pb2.Agent(key="analyst", name="Analyst", mode="REACT", model="m", tools=["python"])
    assistant = agent_pb2.Agent(
        key="assistant", name="Assistant", description="Knows the weather", questions=["Rain?"], is_simulated=True
    )
    script = Orchestrator(agents=[analyst, assistant], query=Story().content("No").complete().steps)
    async with opening(script=script) as console:
        page = console.page
        await expect(page.locator("#agent")).to_have_value("assistant")
        await expect(page.locator("#welcome")).to_contain_text("Knows the weather")
        await expect(page.locator("#simulated")).to_contain_text("Simulated model")
        await console.page.get_by_role("button", name="Rain?").click()
        await expect(page.locator(".answer")).to_have_text("No")
        assert (await script.first(agent_pb2.QueryRequest)).message == "Rain?"
        await page.locator("#agent").select_option("analyst")
        await expect(page.locator("#simulated")).to_be_hidden()
        await page.goto("about:blank")
        await page.goto(console.suite.url)
        await expect(page.locator("#agent")).to_have_value("analyst")
        assistant.is_default, analyst.questions[:] = True, ["Mean?"]
        await page.evaluate("localStorage.clear()")
        await page.reload()
        await expect(page.locator("#agent")).to_have_value("assistant")


async def test_a_run_is_forked_and_a_chat_deleted(opening: Opening) -> None:
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        await console.page.get_by_role("button", name="Fork from here").first.click()
        await expect(console.page.get_by_role("link", name="a fork")).to_have_attribute("aria-current", "page")
        assert [(fork.chat_id, fork.run_id) for fork in console.suite.memory.forked] == [(CHAT, RUN)]
        await console.page.get_by_role("button", name="Delete a fork").click()
        await console.page.get_by_role("button", name="Cancel").click()
        assert FORKED in console.suite.memory.chats
        await console.page.get_by_role("button", name="Delete a fork").click()
        await console.page.get_by_role("button", name="Delete", exact=True).click()
        await expect(console.page.get_by_role("link", name="a fork")).to_have_count(0)
        await expect(console.page.locator(".run")).to_have_count(0)
        assert FORKED not in console.suite.memory.chats


@pytest.mark.nightly
async def test_a_chat_is_renamed(opening: Opening) -> None:
    async with opening(memory=make_two_runs()) as console:
        rename = console.page.get_by_role("button", name="Rename 水车 怎么")
        dialog = console.page.get_by_role("dialog")
        await rename.click()
        await dialog.get_by_role("button", name="Cancel").click()
        await rename.click()
        await dialog.get_by_label("Title").fill("What turns the mill, and why against the stream")
        console.suite.memory.refusal = ChatBusy("the log is damaged")
        await dialog.get_by_role("button", name="Rename").click()
        await expect(dialog.get_by_role("alert")).to_have_text("the log is damaged")
        console.suite.memory.refusal = None
        await dialog.get_by_label("Title").press("Enter")
        await expect(dialog).to_have_count(0)
        link = console.page.locator("#chats").get_by_role(
            "link", name="What turns the mill, and why against the stream"
        )
        await expect(link).to_be_visible()


@pytest.mark.nightly
async def test_chats_are_found_by_text_search(opening: Opening) -> None:
    async with opening(memory=make_two_runs()) as console:
        search, hits = console.page.get_by_label("Search chats"), console.page.locator("#hits li")
        await search.fill("older")
        await expect(hits).to_have_text(["an older one"])
        await expect(console.page.get_by_role("link", name="水车 怎么")).to_be_hidden()
        await expect(console.page.get_by_role("button", name="Show more")).to_be_hidden()
        await hits.get_by_role("link").click()
        await expect(console.page).to_have_url(re.compile(f"#chat={OTHER}"))
        await search.fill("zebra")
        await expect(hits).to_have_text(["No chats found."])
        await search.press("Escape")
        await expect(hits).to_have_count(0)
        await expect(console.page.get_by_role("link", name="水车 怎么")).to_be_visible()
        assert {request.scope for request in console.suite.memory.searched} == {"chats"}


@pytest.mark.nightly
async def test_editing_a_question_reverts_the_chat_after_confirmation(opening: Opening) -> None:
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        await console.page.get_by_role("button", name="Edit question").last.click()
        await expect(console.page.get_by_role("dialog")).to_contain_text("Edit “question 2” and ask again?")
        await console.page.get_by_role("button", name="Cancel").click()
        assert console.suite.memory.reverted == []
        await console.page.get_by_role("button", name="Edit question").last.click()
        await console.page.get_by_role("dialog").get_by_role("button", name="Edit").click()
        await expect(console.page.locator(".question p")).to_have_text(["question 1"])
        await expect(console.page.locator("#message")).to_have_value("question 2")
        (revert,) = console.suite.memory.reverted
        assert (revert.chat_id, revert.checkpoint_id, revert.n) == (CHAT, 1, 4)
        assert revert.request_id


@pytest.mark.nightly
async def test_a_failed_revert_shows_its_reason(opening: Opening) -> None:
    memory = make_two_runs()
    memory.refusal = ChatBusy("a run of the chat has not ended; cancel it first", runId=RUN)
    async with opening(memory=memory, place=f"#chat={CHAT}") as console:
        await console.page.get_by_role("button", name="Edit question").first.click()
        await console.page.get_by_role("dialog").get_by_role("button", name="Edit").click()
        await expect(console.page.locator("#problem")).to_have_text("a run of the chat has not ended; cancel it first")
        await expect(console.page.locator(".run")).to_have_count(2)


async def test_the_context_panel_shows_the_windows_content_and_compactions(opening: Opening) -> None:
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        await console.page.get_by_role("button", name="Context").click()
        panel = console.page.get_by_role("dialog")
        await expect(panel).to_contain_text("9,300 tokens of 32,000 (29%) · 75% of the last call was cached")
        assert await panel.evaluate("dialog => dialog.scrollTop") == 0, "it opens at its beginning"
        await expect(panel.locator("[data-kind] th")).to_have_text(
            ["System message", "Tools", "Summary", "Messages", "Tool results", "Reminder"]
        )
        await expect(panel.locator("[data-kind=tools] td").first).to_have_text("2,600 tokens (8%) · 7 items")
        widths = await panel.locator(".stack span").evaluate_all("parts => parts.map(({ style }) => style.width)")
        assert widths[1] == "8.125%"
        await expect(panel.locator("[data-kind=results]")).to_contain_text("shortened: too long for its place")
        await expect(panel.locator("section:not(.compaction) li")).to_have_text(
            [
                "summarised 24 × Messages, 8,800 tokens, lines 1 to 29: a summary replaces it",
                "left out 1 × Tool results, 40,000 tokens, lines 31 to 31: does not fit the model's window",
            ]
        )
        compaction = panel.locator(".compaction")
        for fact in (
            "automatic · between runs · edited since",
            "26,000 tokens → 9,000 tokens (35%) · files kept: plan.md",
            "It covers lines 1 to 29, 24 messages; 9 stay",
            "The summarising model saw 8,000 of 8,800 tokens; not all of lines 12–14",
            "It cost 9,000 tokens in · 600 out · 1 model call · 0 tool calls · $0.0200 · 50% cached",
        ):
            await expect(compaction).to_contain_text(fact)
        await compaction.get_by_text("Kept word for word: 1 item").click()
        await expect(compaction.get_by_text("Intent: My boat is Ada.")).to_be_visible()
        await compaction.get_by_text("Sections of the summary").click()
        await expect(compaction.locator("tr").first).to_contain_text("Primary request and intent1,200 tokens")
        await expect(panel.locator(".spent")).to_contain_text("between runs: 9,000 tokens in")
        await console.check_accessibility()
        await panel.get_by_role("button", name="Close").click()
        await expect(console.page.locator("dialog")).to_have_count(0)


@pytest.mark.nightly
async def test_questions_and_answers_are_pinned_and_unpinned(opening: Opening) -> None:
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        pins, button = console.suite.memory.pins, console.page.get_by_role("button", name=re.compile("in answer")).last
        await console.page.get_by_role("button", name="Pin question", exact=True).last.click()
        await expect(console.page.get_by_role("button", name="Unpin question")).to_have_count(1)
        await button.click()
        await expect(button).to_have_text("Unpin answer")
        assert [(n, pin.role) for n, pin in pins.items()] == [(4, "user"), (5, "assistant")]
        await console.page.reload()
        await expect(button).to_have_text("Unpin answer")
        await expect(console.page.get_by_role("button", name="Pin answer", exact=True)).to_have_count(1)
        await button.click()
        await expect(button).to_have_text("Pin answer")
        assert [*pins] == [4]


@pytest.mark.nightly
async def test_the_summary_can_be_edited(opening: Opening) -> None:
    async with opening(memory=make_two_runs(), place=f"#chat={CHAT}") as console:
        await console.page.get_by_role("button", name="Context").click()
        await console.page.get_by_text("The summary", exact=True).click()
        await expect(console.page.get_by_label("Summary", exact=True)).to_have_value("of the weather")
        await console.page.get_by_label("Summary", exact=True).fill("They spoke of boats.")
        await console.page.get_by_role("button", name="Save: Summary").click()
        await expect(console.page.get_by_role("dialog")).to_contain_text("Saved: the next request has it.")
        [edit] = console.suite.memory.edits
        assert (edit.n, edit.text) == (41, "They spoke of boats.")


@pytest.mark.nightly
async def test_the_session_state_can_be_viewed_and_edited(opening: Opening) -> None:
    memory = make_two_runs()
    memory.state, memory.state_version = '{"todos":["buy milk"]}', 3
    async with opening(memory=memory, place=f"#chat={CHAT}") as console:
        await console.page.get_by_role("button", name="Context").click()
        await console.page.get_by_text("The session state").click()
        field, note = console.page.get_by_label("Session state", exact=True), console.page.locator("[role=status]")
        assert json.loads(await field.input_value()) == {"todos": ["buy milk"]}
        save = console.page.get_by_role("button", name="Save: Session state")
        for number in range(2):
            await field.fill(f'{{"todos": [{number}]}}')
            await save.click()
            await expect(console.page.get_by_role("dialog")).to_contain_text("Saved: the next request has it.")
            assert json.loads(console.suite.memory.state) == {"todos": [number]}
        await field.fill("{")
        await save.click()
        await expect(note.last).not_to_contain_text("Saved")
        assert console.suite.memory.state_version == 5


async def test_the_trace_shows_turns_and_calls_as_a_tree_with_times_tokens_and_cost(opening: Opening) -> None:
    story = (
        Story()
        .reasoning("Ask both.")
        .call("c1", "weather", '{"city": "Paris"}')
        .result("c1", "no <b>answer</b>", ok=False)
    )
    story.add(subagent_start=agent_pb2.SubagentStart(subagent_id="s-1", parent_id=RUN, agent_key="scout", goal="Look"))
    story.call("c2", "web_search", "{}", subagent_id="s-1").result("c2", "mild", subagent_id="s-1")
    story.add(subagent_end=agent_pb2.SubagentEnd(subagent_id="s-1", ok=True)).content("Mild.", number=2).complete()
    usage = {"inputTokens": 1200, "outputTokens": 34, "costUsd": 0.0015}
    message = {"role": "assistant", "_msgId": "m_1", "_reasoningId": f"{RUN}_r_1", "_usage": usage}
    # axe is injected, which the page's own policy would rightly refuse.
    async with opening(
        memory=Memory(events=story.events, raw=[message]), place=f"#chat={CHAT}", bypass_csp=True
    ) as console:
        await console.page.get_by_role("button", name="Trace").click()
        dialog = console.page.get_by_role("dialog", name="Trace of helper")
        rows = dialog.get_by_role("treeitem")
        levels = [
            (await row.get_attribute("aria-level"), await row.locator(".name").first.inner_text())
            for row in await rows.all()
        ]
        assert levels == [
            ("1", "Run helper"),
            ("2", "Model Turn 1"),
            ("2", "Tool weather"),
            ("2", "Sub-agent scout"),
            ("3", "Model Turn 2"),
            ("3", "Tool web_search"),
            ("2", "Model Turn 3"),
        ]
        await expect(rows.nth(1)).to_contain_text("1,200 → 34 tokens · $0.0015")
        await expect(rows.nth(2)).to_contain_text("failed")
        await rows.nth(2).locator(".span").click()
        await expect(rows.nth(2).get_by_role("group", name="Arguments")).to_contain_text('"city": "Paris"')
        await expect(rows.nth(2).get_by_role("group", name="Result")).to_have_text("no <b>answer</b>")
        await rows.first.focus()
        await console.page.keyboard.press("ArrowDown")
        await expect(rows.nth(1)).to_be_focused()
        await console.page.keyboard.press("Enter")
        await expect(rows.nth(1).get_by_role("group", name="Reasoning")).to_have_text("Ask both.")
        await console.check_accessibility()
        await console.page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)


async def test_uploaded_files_are_sent_with_the_question(opening: Opening) -> None:
    async with opening(Story().complete()) as console:
        files = [{"name": name, "mimeType": "text/plain", "buffer": name.encode()} for name in ("a.txt", "b.txt")]
        await console.page.locator("#file").set_input_files(files)  # pyright: ignore[reportArgumentType] - FilePayload
        await expect(console.page.locator("#files li")).to_have_count(2)
        await console.page.get_by_role("button", name="Remove a.txt").click()
        await expect(console.page.get_by_role("button", name="Remove b.txt")).to_be_visible()
        await console.ask()
        await expect(console.page.locator("#files li")).to_have_count(0)
        query = await console.suite.script.first(agent_pb2.QueryRequest)
        uploaded = [(start.name, data) for start, data in console.suite.tools.uploaded]
        assert uploaded == [("a.txt", b"a.txt"), ("b.txt", b"b.txt")]
        assert [reference.name for reference in query.references] == ["b.txt"]


async def test_files_stay_with_the_chat_they_were_uploaded_to(opening: Opening) -> None:
    async with opening(memory=make_two_runs()) as console:
        file = {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a"}
        await console.page.locator("#file").set_input_files(file)  # pyright: ignore[reportArgumentType] - FilePayload
        await expect(console.page.get_by_role("button", name="Remove a.txt")).to_be_visible()
        await console.page.get_by_role("link", name="水车 怎么").click()
        await expect(console.page.locator(".question p")).to_have_text(["question 1", "question 2"])
        await expect(console.page.locator("#files li")).to_have_count(0)
        await console.ask()
        assert not (await console.suite.script.first(agent_pb2.QueryRequest)).references


@pytest.mark.parametrize("key", [{"isComposing": True}, {"keyCode": 229}])
async def test_a_key_used_by_an_input_method_does_not_send_the_message(opening: Opening, key: dict[str, Any]) -> None:
    """Safari ends a composition before the Enter key that ends it; only the key's code distinguishes that Enter."""
    press = """(key) => document.activeElement.dispatchEvent(
        new KeyboardEvent('keydown', {key: 'Enter', cancelable: true, bubbles: true, ...key}))"""
    async with opening(Story().complete()) as console:
        await console.page.fill("#message", "水车")
        assert await console.page.evaluate(press, key), "it is the input method's"
        assert await console.page.input_value("#message") == "水车"
        assert not await console.page.evaluate(press, {})
        await expect(console.page.locator("#message")).to_have_value("")


@pytest.mark.nightly
async def test_everything_can_be_done_by_keyboard(opening: Opening) -> None:
    script = Orchestrator()
    story = Story().call("c1", "_bash_", '{"command": "sudo ls"}').ask_approval().wait(script.cancelled).cancelled()
    script.query = story.steps
    async with opening(script=script) as console:
        await expect(console.page.locator("#message")).to_be_focused()
        await console.page.keyboard.type("first line")
        await console.page.keyboard.press("Shift+Enter")
        await console.page.keyboard.type("second")
        await console.page.keyboard.press("Enter")
        await expect(console.page.get_by_role("button", name="Approve")).to_be_visible()
        await tab_to(console.page, "Approve")
        await console.page.keyboard.press("Enter")
        await expect(console.page.locator(".approval")).to_contain_text("Sent.")
        await console.page.locator("#message").focus()
        await tab_to(console.page, "Stop", key="Tab")
        await console.page.keyboard.press("Space")
        await expect(console.page.locator(".end")).to_contain_text("Stopped.")
        await expect(console.page.locator("#message")).to_be_focused()
        query = await script.first(agent_pb2.QueryRequest)
        assert query.message == "first line\nsecond"


async def test_screen_reader_announcements_are_paragraphs_not_tokens(opening: Opening) -> None:
    watch = """() => {
        window.said = [];
        const announcer = document.getElementById('announcer');
        new MutationObserver(() => said.push(announcer.textContent)).observe(announcer, { childList: true });
    }"""
    story = Story().content(*("word " * 50).split(), "\n\n", "Done.").complete()
    async with opening(story) as console:
        await console.page.evaluate(watch)
        await console.ask()
        await expect(console.page.locator("#announcer")).to_contain_text("Done.")
        announcements = await console.page.evaluate("said")
        assert announcements == [f"{'word' * 50}\nDone.\nThe answer is complete."]


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_follows_the_colour_scheme_and_passes_axe(opening: Opening, scheme: str) -> None:
    story = Story().reasoning("hm").plan(("t1", "Look", "in_progress"), ("t2", "Write", "skipped"))
    story.add(run_notice=agent_pb2.RunNotice(run_id=RUN, code="X", message="note"))
    story.call("t_1", "order", "{}", start={"tool_type": "frontend", "viewport_key": "order"})
    story.call("c1", "_bash_", '{"command": "ls"}').ask_approval().call("c2", "x", "{}").result("c2", "no", ok=False)
    story.content('# Head\n\n[link](https://x.org)\n\n| a |\n|---|\n| b |\n\n```py\nx = 1  # "y"\n```\n\n> quote').wait(
        asyncio.Event()
    )
    # axe is injected, which the page's own policy would rightly refuse.
    async with opening(story, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True) as console:
        await console.ask()
        await expect(console.page.locator("blockquote")).to_be_visible()
        await expect(console.page.locator("form.form")).to_be_visible()
        ground = await console.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(246, 247, 248)", "dark": "rgb(20, 24, 27)"}[scheme]
        assert await console.page.evaluate("document.getAnimations().length") == 0
        await console.check_accessibility()


async def test_facts_are_viewed_edited_and_deleted(opening: Opening) -> None:
    memory = Memory()
    for text in ("likes <b>tea</b>", "lives in Oslo"):
        await memory.Remember(memory_pb2.RememberRequest(text=text), None)
    async with opening(memory=memory) as console:
        await console.page.get_by_role("button", name="Facts").click()
        dialog = console.page.get_by_role("dialog")
        await expect(dialog.locator("li p")).to_have_text(["lives in Oslo", "likes <b>tea</b>"])
        await console.check_accessibility()
        async with console.page.expect_download() as download:
            await dialog.get_by_role("button", name="Export").click()
        saved = await (await download.value).path()
        exported = [json.loads(line) for line in saved.read_text().splitlines()]
        assert [fact["text"] for fact in exported] == ["likes <b>tea</b>", "lives in Oslo"]
        await dialog.get_by_role("button", name="Edit “lives in Oslo”").click()
        await dialog.get_by_role("textbox", name="Fact").fill("lives in Rome")
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog.locator("li p").first).to_have_text("lives in Rome")
        await dialog.get_by_role("button", name="Delete “likes <b>tea</b>”").click()
        await expect(dialog.locator("li")).to_have_count(1)
        await dialog.get_by_role("button", name="Delete “lives in Rome”").click()
        await expect(dialog.get_by_text("No facts are stored about you.")).to_be_visible()
        await dialog.get_by_role("button", name="Close").click()
        await expect(dialog).to_have_count(0)
    assert all(fact.deleted_at for fact in (await memory.ExportFacts(memory_pb2.ExportFactsRequest(), None)).facts)
