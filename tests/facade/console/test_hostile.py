"""Texts of models, tools, files and other people are shown, never executed."""

import asyncio

import pytest
from playwright.async_api import Error, expect

from headrace.v1 import agent_pb2, common_pb2
from tests.support.console.page import Opening
from tests.support.console.scripted import Memory, Orchestrator, Story
from tests.support.facade.scripted import CHAT, RUN

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = (
    '<img src=x onerror="window.hit=1"><script>window.hit=1</script><svg onload="window.hit=1"></svg>'
    '<iframe srcdoc="<script>parent.hit=1</script>"></iframe><a href="javascript:window.hit=1">x</a>'
)
LINKS = (
    "[a](javascript:window.hit=1) [b](JaVaScRiPt:window.hit=1) [c](data:text/html,x) [d](vbscript:x) "
    "![e](javascript:window.hit=1) ![f](https://evil.example/p.png) <javascript:window.hit=1> "
    "[g](//evil.example) [h](\tjavascript:window.hit=1) [i](&#106;avascript:window.hit=1)"
)


def everywhere() -> Story:
    """Return a run with hostile text in every field that is shown."""
    story = Story(EVIL).reasoning(EVIL).plan((EVIL, EVIL, EVIL))
    story.add(task_start=agent_pb2.TaskStart(task_id=EVIL, run_id=RUN, task_name=EVIL))
    story.add(task_complete=agent_pb2.TaskComplete(task_id=EVIL, summary=EVIL))
    started = agent_pb2.SubagentStart(subagent_id=EVIL, run_id=RUN, parent_id=RUN, agent_key=EVIL, goal=EVIL)
    story.add(subagent_start=started).add(subagent_end=agent_pb2.SubagentEnd(subagent_id=EVIL, summary=EVIL))
    story.call("c1", EVIL, '{"a": "<script>window.hit=1</script>"}', start={"description": EVIL}).output("c1", EVIL)
    story.add(approval_ask=agent_pb2.ApprovalAsk(approval_id="a", tool_id="c1", reason=EVIL, risk=EVIL, expires_at=1))
    story.add(approval_answer=agent_pb2.ApprovalAnswer(approval_id="a", decision=EVIL, by=EVIL, note=EVIL))
    story.result("c1", EVIL, ok=False)
    story.add(run_notice=agent_pb2.RunNotice(run_id=RUN, code=EVIL, message=EVIL))
    story.add(source_snapshot=agent_pb2.SourceSnapshot(source_id="s", title=EVIL, url="javascript:window.hit=1"))
    sent = agent_pb2.Upload(type=EVIL, name=EVIL, size_bytes=1, mime_type=EVIL)
    story.add(request_upload=agent_pb2.RequestUpload(request_id=EVIL, chat_id=CHAT, upload=sent))
    url = "javascript:window.hit=1"
    story.add(artifact_publish=agent_pb2.ArtifactPublish(name=EVIL, mime_type=EVIL, size_bytes=1, url=url))
    story.add(compaction_fail=agent_pb2.CompactionFail(chat_id=CHAT, reason=EVIL))
    story.content(EVIL, "\n\n", LINKS, "\n\n```", EVIL, "\n", EVIL, "\n```\n\n| ", EVIL, " |\n|---|\n| ", EVIL, " |")
    return story.add(run_error=agent_pb2.RunError(run_id=RUN, error=common_pb2.Failure(code=EVIL, message=EVIL)))


async def test_no_text_becomes_markup(opening: Opening) -> None:
    script, memory = Orchestrator(query=everywhere().steps, agent_name=EVIL), Memory(chats={CHAT: EVIL})
    async with opening(script=script, memory=memory) as console:
        await console.ask(EVIL)
        await expect(console.page.locator(".failure")).to_contain_text(EVIL)
        await expect(console.page.locator("#chats li")).to_contain_text(EVIL)
        await expect(console.page.locator("#agent option").nth(1)).to_have_text(f"🧭 {EVIL}")
        await expect(console.page.locator(".run > .flow > .answer > p").first).to_have_text(EVIL)
        assert (
            await console.page.locator(":is(#runs, nav) :is(img, script, svg:not(.icon), iframe, object)").count() == 0
        )
        links = await console.page.locator("#runs a").evaluate_all("(all) => all.map((a) => a.href)")
        assert links == ["https://evil.example/p.png"]
        names = "[...document.querySelectorAll('*')].flatMap((element) => element.getAttributeNames())"
        assert not [name for name in await console.page.evaluate(names) if name.startswith("on")]
        await console.page.get_by_role("button", name="Trace").click()
        assert await console.page.locator("dialog :is(img, script, svg:not(.icon))").count() == 0
        assert await console.page.evaluate("window.hit") is None


async def test_a_tool_view_can_reach_neither_the_page_nor_the_api(opening: Opening) -> None:
    start = {"tool_type": "frontend", "viewport_key": "hostile"}
    async with opening(Story().call("t_1", "hostile", "{}", start=start).wait(asyncio.Event())) as console:
        await console.page.evaluate("document.cookie = 'session=secret'")
        await console.ask()
        findings = console.page.frame_locator("iframe").locator("#seen")
        await expect(findings).to_have_text("cookie closed, page closed, api closed")
        assert all("Content Security Policy" in problem for problem in console.problems)
        console.problems.clear()


@pytest.mark.nightly
async def test_a_tool_view_can_open_no_connection(opening: Opening) -> None:
    connections: list[str] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append("TCP")
        writer.close()

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            connections.append("UDP")

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Datagrams, ("127.0.0.1", port))
        start = {"tool_type": "frontend", "viewport_key": "leaky"}
        story = Story().call("t_1", "leaky", f'{{"port": {port}}}', start=start).wait(asyncio.Event())
        async with opening(story) as console:
            await console.ask()
            frame = console.page.frame_locator("iframe")
            await expect(frame.locator("#seen")).to_have_text("tried")
            await frame.locator("#leave").click()
            await expect(frame.locator("#seen")).to_have_count(0)  # an error page is in its place
            console.problems.clear()
        transport.close()
    assert connections == []


@pytest.mark.nightly
async def test_the_page_cannot_turn_strings_into_markup(opening: Opening) -> None:
    async with opening() as console:
        with pytest.raises(Error, match="TrustedHTML"):
            await console.page.evaluate("document.body.innerHTML = '<b>x</b>'")
        assert "TrustedHTML" in console.problems.pop()
