"""Runs in the console, in a real browser: asking, showing, answering, stopping, and resuming after a break."""

import asyncio

import orjson
import pytest
from playwright.async_api import Page, expect

from headrace.errors import ChatBusy, Overloaded
from headrace.v1 import agent_pb2, common_pb2, gates_pb2
from tests.support.console.page import Opening
from tests.support.console.scripted import Memory, Orchestrator, Story
from tests.support.facade.scripted import CHAT, RUN

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATER = "55555555-5555-4555-8555-555555555555"
FRONTEND = {"tool_type": "frontend", "tool_timeout": 300_000}


async def read_submit(script: Orchestrator) -> tuple[str, object]:
    """Wait for the first submit and return its id and payload."""
    request = await script.first(agent_pb2.SubmitRequest)
    assert request.run_id == RUN
    return request.tool_id or request.approval_id, orjson.loads(request.payload)


async def test_a_question_is_sent_and_its_answer_shown(opening: Opening) -> None:
    story = Story("What is the weather?").reasoning("hm", "m").content("It is **", "20°", "**.").complete()
    async with opening(story) as console:
        await console.page.select_option("#agent", "writer")
        await console.ask("What is the weather?")
        await expect(console.page.locator(".answer strong")).to_have_text("20°")
        assert await console.text(".question p") == "What is the weather?"
        assert "12 tokens in · 5 out · 2 model calls · 1 tool call" in await console.text(".end")
        query = await console.suite.script.first(agent_pb2.QueryRequest)
        assert (query.message, query.agent_key) == ("What is the weather?", "writer")
        await expect(console.page.locator(".reasoning")).not_to_have_attribute("open", "")
        await console.page.click(".reasoning summary")
        await expect(console.page.locator(".thought")).to_have_text("hmm")


@pytest.mark.nightly
async def test_a_call_shows_arguments_output_and_result(opening: Opening) -> None:
    story = Story().call("c1", "convert", '{"n": 12345678901234567890}').output("c1", "half", " a line\n")
    story.result("c1", '{"m":1}').call("c2", "fetch", "{}").result("c2", "timed out", ok=False).complete()
    async with opening(story) as console:
        await console.ask()
        first, second = console.page.locator(".tool").nth(0), console.page.locator(".tool").nth(1)
        await expect(second.locator("summary")).to_contain_text("failed:")
        await expect(first.locator("summary")).to_contain_text("done:")
        await expect(first.locator("pre").first).to_be_hidden()
        await expect(first.locator(".came")).to_have_text('{"m":1}')
        await expect(second.locator(".came")).to_have_text("timed out")
        await first.locator("summary").click()
        assert await first.locator("pre").all_inner_texts() == [
            '{\n  "n": 12345678901234567890\n}',
            "half a line\n",
            '{\n  "m": 1\n}',
        ]


async def test_a_result_equal_to_the_output_is_shown_once(opening: Opening) -> None:
    story = Story().call("c1", "_bash_", "{}").output("c1", "69", ".8\n").result("c1", "69.8\n").complete()
    async with opening(story) as console:
        await console.ask()
        await expect(console.page.locator(".came")).to_have_text("69.8")
        await console.page.locator(".tool summary").click()
        await expect(console.page.get_by_role("group", name="Output")).to_have_text("69.8\n")
        await expect(console.page.get_by_role("group", name="Result")).to_have_count(0)


async def test_a_run_shows_its_progress_until_text_arrives(opening: Opening) -> None:
    queued, started, called, answered = (asyncio.Event() for _ in range(4))
    story = Story()
    story.steps.insert(1, queued)
    story.wait(started).call("c1", "look", "{}").wait(called).result("c1", "x").wait(answered).content(
        "Done"
    ).complete()
    async with opening(story) as console:
        await console.ask()
        doing = console.page.locator(".doing")
        for text, then in (
            ("Queued…", queued),
            ("Waiting for the model…", started),
            ("Running the tool…", called),
            ("Waiting for the model…", answered),
        ):
            await expect(doing).to_contain_text(text)
            then.set()
        await expect(console.page.locator(".answer")).to_have_text("Done")
        await expect(doing).to_be_hidden()


async def test_plans_tasks_and_subagents_are_shown_separately(opening: Opening) -> None:
    story = Story().plan(("t1", "Look", "init"), ("t2", "Write", "init"))
    story.add(task_start=agent_pb2.TaskStart(task_id="t1", run_id=RUN, task_name="Look"))
    started = agent_pb2.SubagentStart(
        subagent_id="subagent-1", run_id=RUN, parent_id=RUN, agent_key="scout", depth=1, goal="Find it"
    )
    story.add(task_id="t1", subagent_start=started)
    story.begin_content(1, subagent_id="subagent-1").begin_content(2, task_id="t1")
    story.say("from ", number=1, subagent_id="subagent-1").say("of the ", number=2, task_id="t1")
    story.say("scout", number=1, subagent_id="subagent-1").say("task", number=2, task_id="t1")
    story.end_content(1, subagent_id="subagent-1").end_content(2, task_id="t1")
    go_on = asyncio.Event()
    story.wait(go_on).add(subagent_end=agent_pb2.SubagentEnd(subagent_id="subagent-1", ok=True, summary="found"))
    story.add(
        task_fail=agent_pb2.TaskFail(task_id="t1", error=common_pb2.Failure(code="NOT_FOUND", message="no such thing"))
    )
    story.plan(("t1", "Look", "failed"), ("t2", "Write", "skipped"), is_update=True).content(
        "Done", number=3
    ).complete()
    async with opening(story) as console:
        await console.ask()
        task, scout = console.page.locator(".lane").nth(0), console.page.locator(".lane .lane")
        await expect(scout.locator(".answer")).to_have_text("from scout")
        await expect(task.locator("> .flow > .answer")).to_have_text("of the task")
        await expect(scout.locator("summary")).to_contain_text("scout")
        await expect(scout.locator(".goal")).to_have_text("Find it")
        await expect(console.page.locator(".plan li").nth(0)).to_contain_text("in progress: Look")
        go_on.set()
        await expect(console.page.locator(".plan li").nth(1)).to_contain_text("skipped: Write")
        await expect(console.page.locator(".plan li").nth(0)).to_contain_text("failed: Look")
        await expect(task.locator("> summary")).to_contain_text("no such thing")
        await expect(console.page.locator("#runs .run > .flow > .answer")).to_have_text("Done")


@pytest.mark.nightly
async def test_a_planners_text_is_collapsed_and_the_answer_is_not(opening: Opening) -> None:
    story = Story()
    for number, stage in enumerate(("plan", "summary"), start=1):
        block = f"{story.run_id}_c_{number}"
        start = agent_pb2.ContentStart(content_id=block, run_id=story.run_id, stage=stage, is_answer=stage != "plan")
        story.add(content_start=start).say(f"from {stage}", number=number).end_content(number)
    async with opening(story.complete()) as console:
        await console.ask()
        await expect(console.page.locator(".answer")).to_have_text("from summary")
        await expect(console.page.locator(".reasoning")).not_to_have_attribute("open", "")
        await expect(console.page.locator(".reasoning summary")).to_have_text("Planning")


@pytest.mark.nightly
async def test_notices_sources_files_and_compactions_are_shown_as_lines(opening: Opening) -> None:
    story = Story().add(run_notice=agent_pb2.RunNotice(run_id=RUN, code="TOOL_UNAVAILABLE", message="files is down"))
    story.add(source_snapshot=agent_pb2.SourceSnapshot(source_id="s", title="A page", url="https://x.org/"))
    sent = agent_pb2.Upload(type="text", name="in.csv", size_bytes=2048, mime_type="text/csv")
    story.add(request_upload=agent_pb2.RequestUpload(request_id="q", chat_id=CHAT, upload=sent))
    url = f"/api/resource?chatId={CHAT}&path=outputs/a.csv"
    story.add(artifact_publish=agent_pb2.ArtifactPublish(name="a.csv", mime_type="text/csv", size_bytes=20480, url=url))
    story.add(compaction_start=agent_pb2.CompactionStart(chat_id=CHAT, trigger="auto", pre_tokens=9000))
    compaction = agent_pb2.CompactionComplete(chat_id=CHAT, pre_tokens=9000, post_tokens=100, files_included=["a.py"])
    story.add(compaction_complete=compaction)
    async with opening(story.complete()) as console:
        await console.ask()
        await expect(console.page.locator(".line")).to_have_text(
            [
                "files is down TOOL_UNAVAILABLE",
                "Source: A page",
                "Uploaded: in.csv text/csv, 2 KiB",
                "File: a.csv text/csv, 20 KiB",
                "Older messages were summarised: 9,000 tokens → 100 tokens (1%) · files kept: a.py",
            ]
        )
        assert await console.page.locator(".artifact a").get_attribute("href") == console.suite.url + url
        assert await console.page.locator(".source a").get_attribute("rel") == "noopener noreferrer"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("click", "decision"), [("Approve", {"decision": "approve"}), ("Reject", {"decision": "reject", "note": "not now"})]
)
async def test_an_approval_is_answered(opening: Opening, click: str, decision: dict[str, str]) -> None:
    decided = asyncio.Event()
    story = Story().call("c1", "_bash_", '{"command": "rm -rf build"}').ask_approval().wait(decided)
    answer = agent_pb2.ApprovalAnswer(approval_id="ap_1", decision=decision["decision"], by="Ada", credential="key-1")
    story.add(approval_answer=answer).result("c1", "ok").complete()
    async with opening(story) as console:
        await console.ask()
        approval = console.page.get_by_role("region", name="Approval")
        await expect(approval).to_contain_text("May _bash_ run? high risk")
        await expect(console.page.locator(".tool pre")).to_contain_text("rm -rf build")
        await approval.get_by_label("Note for the model").fill(decision.get("note", ""))
        await approval.get_by_role("button", name=click).click()
        assert await read_submit(console.suite.script) == ("ap_1", decision)
        await expect(approval).to_contain_text("Sent.")
        await expect(approval.get_by_role("button", name=click)).to_be_disabled()
        decided.set()
        await expect(approval).to_have_text(("Approved" if click == "Approve" else "Rejected") + " by Ada")


@pytest.mark.nightly
async def test_arguments_edited_by_a_vote_are_shown_and_approved(opening: Opening) -> None:
    voted, decided = asyncio.Event(), asyncio.Event()
    vote = agent_pb2.GateStep(gate_id="ap_1", step="vote", by="bob", decision="edit", arguments='{"to": "Eve"}')
    story = Story().call("c1", "pay", "{}").ask_approval().wait(voted).add(gate_step=vote).wait(decided)
    async with opening(story.result("c1", "ok").complete()) as console:
        await console.ask()
        approval = console.page.get_by_role("region", name="Approval")
        await approval.get_by_role("button", name="Approve", exact=True).click()
        assert await read_submit(console.suite.script) == ("ap_1", {"decision": "approve"})
        await expect(approval.get_by_role("button", name="Approve", exact=True)).to_be_disabled()
        voted.set()
        await expect(approval.locator("pre")).to_have_text('{\n  "to": "Eve"\n}')
        await approval.get_by_role("button", name="Approve", exact=True).click()
        await expect(approval).to_contain_text("Sent.")
        sent = [request for request in console.suite.script.requests if isinstance(request, agent_pb2.SubmitRequest)]
        assert orjson.loads(sent[-1].payload) == {"decision": "edit", "arguments": {"to": "Eve"}}
        decided.set()


@pytest.mark.nightly
async def test_an_approver_can_ask_the_requester_a_question(opening: Opening) -> None:
    async with opening(Story().call("c1", "pay", "{}").ask_approval().wait(asyncio.Event())) as console:
        await console.ask()
        approval = console.page.get_by_role("region", name="Approval")
        await approval.get_by_role("button", name="Ask or reply").click()
        await expect(approval).to_contain_text("Enter the question")
        await approval.get_by_label("Note for the model").fill("what for?")
        await approval.get_by_role("button", name="Ask or reply").click()
        await expect(approval).to_contain_text("Sent; it stays open.")
        await expect(approval.get_by_role("button", name="Approve")).to_be_enabled()
        request = await console.suite.script.first(gates_pb2.AskBackRequest)
        assert (request.run_id, request.gate_id, request.note) == (RUN, "ap_1", "what for?")


@pytest.mark.nightly
async def test_votes_and_escalations_of_an_open_gate_are_shown(opening: Opening) -> None:
    story = Story().call("c1", "pay", "{}").ask_approval()
    story.add(gate_step=agent_pb2.GateStep(gate_id="ap_1", step="vote", by="bob", credential="k", decision="approve"))
    story.add(gate_step=agent_pb2.GateStep(gate_id="ap_1", step="escalated", to=["role:board"]))
    async with opening(story.wait(asyncio.Event())) as console:
        await console.ask()
        lines = console.page.locator(".gate-step")
        await expect(lines).to_have_text(["vote to approve by bob", "escalated to role:board"])


async def test_an_approval_is_answered_with_other_arguments(opening: Opening) -> None:
    story = Story().call("c1", "pay", '{"account": 12345678901234567890}').ask_approval().wait(asyncio.Event())
    async with opening(story) as console:
        await console.ask()
        await console.page.get_by_role("button", name="Edit…").click()
        editor = console.page.get_by_label("Arguments to run with")
        await editor.fill("{no")
        await console.page.get_by_role("button", name="Approve as edited").click()
        await expect(console.page.get_by_role("alert").filter(has_text="not valid JSON")).to_be_visible()
        await editor.fill('{"account": 12345678901234567891}')
        await console.page.get_by_role("button", name="Approve as edited").click()
        assert await read_submit(console.suite.script) == (
            "ap_1",
            {"decision": "edit", "arguments": {"account": 12345678901234567891}},
        )


@pytest.mark.nightly
async def test_ask_human_shows_a_question_with_choices(opening: Opening) -> None:
    params = '{"question": "Which day?", "choices": ["Monday", "Tuesday"]}'
    answered = asyncio.Event()
    story = Story().call("t_1", "ask_human", params, start=FRONTEND | {"viewport_key": "ask_human"}).wait(answered)
    async with opening(story.result("t_1", "Tuesday").complete()) as console:
        await console.ask()
        await console.page.get_by_role("button", name="Tuesday").click()
        await expect(console.page.get_by_label("Which day?")).to_have_value("Tuesday")
        await console.page.get_by_role("button", name="Submit").click()
        assert await read_submit(console.suite.script) == ("t_1", {"answer": "Tuesday"})
        answered.set()
        await expect(console.page.locator("form.form")).to_have_count(0)


async def test_an_html_view_receives_the_arguments_and_submits(opening: Opening) -> None:
    start = FRONTEND | {"viewport_key": "page"}
    story = Story().call("t_1", "page", '{"question": "Umbrella?"}', start=start).wait(asyncio.Event())
    async with opening(story) as console:
        await console.ask()
        view = console.page.frame_locator("iframe")
        await expect(view.locator("#asked")).to_have_text("Umbrella?")
        assert await console.page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
        await view.locator("#take").click()
        assert await read_submit(console.suite.script) == ("t_1", {"taken": True})


async def test_a_run_is_steered_and_stopped(opening: Opening) -> None:
    script = Orchestrator()
    story = Story().begin_content().say("half").wait(script.cancelled).end_content().cancelled()
    script.query = story.steps
    async with opening(script=script) as console:
        await console.ask()
        await expect(console.page.locator(".answer")).to_have_text("half")
        await console.ask("Shorter!")
        steered = await script.first(agent_pb2.SteerRequest)
        assert steered.message == "Shorter!"
        await console.page.get_by_role("button", name="Stop").click()
        await expect(console.page.locator(".end")).to_contain_text("Stopped.")
        await expect(console.page.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
        await expect(console.page.get_by_role("button", name="Stop")).to_be_hidden()


@pytest.mark.nightly
async def test_a_message_too_late_to_steer_a_run_starts_the_next_run(opening: Opening) -> None:
    go_on = asyncio.Event()
    later = Story("Shorter!", run_id=LATER).content("Short.").complete()
    script = Orchestrator(query=Story().wait(go_on).complete().steps, steered_into=LATER)
    async with opening(script=script) as console:
        await console.ask()
        await expect(console.page.get_by_role("button", name="Stop")).to_be_visible()
        await console.ask("Shorter!")
        await script.first(agent_pb2.SteerRequest)
        go_on.set()
        await script.begin(later.steps)
        await expect(console.page.locator(".question p")).to_have_text(["hi", "Shorter!"])
        await expect(console.page.locator(".answer")).to_have_text("Short.")


async def reload(page: Page) -> None:
    await page.reload()
    await page.locator("#agent option").nth(1).wait_for(state="attached")


@pytest.mark.nightly
async def test_a_reload_in_mid_stream_resumes_the_run(opening: Opening) -> None:
    go_on = asyncio.Event()
    story = Story().reasoning("hm").begin_content().say("one ", "two ").wait(asyncio.Event())
    again = [*story.steps[-4:-1], go_on, *story.say("three").end_content().complete().steps[-3:]]
    memory = Memory(events=story.events[:3], cursor="1.3")
    async with opening(script=Orchestrator(query=story.steps), memory=memory) as console:
        await console.ask()
        await expect(console.page.locator(".answer")).to_have_text("one two ")
        memory.chats[await console.page.evaluate("location.hash.slice(6, 42)")] = "hi"
        await reload(console.page)
        await console.suite.script.begin(again)
        await expect(console.page.locator(".answer")).to_have_text("one two ")
        await expect(console.page.get_by_role("button", name="Stop")).to_be_visible()
        go_on.set()
        await expect(console.page.locator(".answer")).to_have_text("one two three")
        await expect(console.page.locator(".run")).to_have_count(1)
        followed = [
            request.cursor for request in console.suite.script.requests if isinstance(request, agent_pb2.FollowRequest)
        ]
        assert followed == ["", "1.3"]


async def test_a_call_answered_before_a_reload_is_not_shown_again(opening: Opening) -> None:
    story = Story("", run_id=RUN)
    for number in (1, 2):
        call = agent_pb2.ToolSnapshot(tool_id=f"t_{number}", tool_name="page", tool_params="{}")
        call.tool_type, call.viewport_key = "frontend", "page"
        story.add(tool_snapshot=call)
        story.result("t_1", "yes") if number == 1 else story.wait(asyncio.Event())
    async with opening(memory=Memory(events=story.events), place=f"#chat={CHAT}") as console:
        await expect(console.page.locator(".tool").nth(1).locator("iframe")).to_be_visible()
        await expect(console.page.locator("iframe")).to_have_count(1)


async def test_a_broken_stream_resumes_after_its_last_event(opening: Opening) -> None:
    story = Story().begin_content().say("one ", "two ")
    first_part = [*story.steps, Overloaded("gone")]
    later_events = [
        agent_pb2.FollowDelta(cursor="1.9", delta=event)
        for event in story.say("three").complete().events[len(first_part) - 1 :]
    ]
    script = Orchestrator(query=first_part, follows=[[], [Overloaded("not yet")], later_events])
    async with opening(script=script) as console:
        await console.ask()
        await expect(console.page.locator("#lost")).to_be_visible()
        await expect(console.page.locator(".answer")).to_have_text("one two three")
        await expect(console.page.locator("#lost")).to_be_hidden()
        followed = [event.cursor for event in script.requests if isinstance(event, agent_pb2.FollowRequest)]
        assert followed == ["", f"1.{len(first_part) - 1}", f"1.{len(first_part) - 1}"]


@pytest.mark.nightly
async def test_a_subagents_retry_leaves_other_subagents_unchanged(opening: Opening) -> None:
    story = Story().content("the run", number=1)
    for number, key in enumerate(("s1", "s2"), start=2):
        start = agent_pb2.SubagentStart(subagent_id=key, run_id=RUN, parent_id=RUN, agent_key=key)
        story.add(subagent_start=start, subagent_id=key).begin_content(number, subagent_id=key)
        story.say(f"{key} one", number=number, subagent_id=key)
    story.call("c1", "weather", "{}", subagent_id="s2")
    lost = agent_pb2.AttemptReset(run_id=RUN, from_seq=0, reason="PROVIDER_UNAVAILABLE")
    story.add(attempt_reset=lost, subagent_id="s1").content("s1 again", number=4, subagent_id="s1")
    story.say(" two", number=3, subagent_id="s2").end_content(3, subagent_id="s2")
    async with opening(story.complete()) as console:
        await console.ask()
        lanes = console.page.locator(".lane")
        await expect(console.page.locator(".run > .flow > .answer")).to_have_text(["the run"])
        await expect(lanes.nth(0).locator(".answer")).to_have_text(["s1 again"])
        await expect(lanes.nth(0).locator(".line.notice")).to_have_count(1)
        await expect(lanes.nth(1).locator(".answer")).to_have_text(["s2 one two"])
        await expect(lanes.nth(1).locator(".tool")).to_have_count(1)


@pytest.mark.nightly
async def test_a_refused_or_failed_run_shows_its_reason_and_can_be_retried(opening: Opening) -> None:
    failed = agent_pb2.RunError(run_id=RUN, error=common_pb2.Failure(code="RATE_LIMITED", message="slow down"))
    script = Orchestrator(query=[ChatBusy("the chat has a run")])
    async with opening(script=script) as console:
        await console.ask()
        await expect(console.page.locator(".failure")).to_contain_text("the chat has a run CHAT_BUSY")
        script.query = Story().add(run_error=failed).steps
        await console.page.get_by_role("button", name="Ask again").click()
        await expect(console.page.locator(".failure").nth(1)).to_contain_text("slow down RATE_LIMITED")


@pytest.mark.nightly
async def test_a_live_run_shows_its_remaining_budget(opening: Opening) -> None:
    async with opening(Story().wait(asyncio.Event())) as console:
        await console.ask()
        await expect(console.page.locator(".spent")).to_contain_text("left: 28 model calls · 49 tool calls · 110 s")


@pytest.mark.nightly
async def test_a_thousand_deltas_are_rendered_in_full(opening: Opening) -> None:
    pieces = [f"word{index}{' ' if index % 40 else chr(10) * 2}" for index in range(1000)]
    async with opening(Story().content(*pieces).complete()) as console:
        await console.ask()
        await expect(console.page.locator(".answer p")).to_have_count(26)
        await expect(console.page.locator(".answer")).to_contain_text("word999")
        assert (await console.text(".answer")).split() == "".join(pieces).split()


@pytest.mark.nightly
async def test_an_approval_can_grant_later_calls_and_their_use_is_shown(opening: Opening) -> None:
    story = Story().call("c1", "pay", "{}")
    story.add(gate_open=agent_pb2.GateOpen(gate_id="ap_1", kind="approval", grounds=["the tool's definition"]))
    story.ask_approval()
    used = {"grant_id": "grant_1", "tool_name": "wipe"}
    story.add(grant_use=agent_pb2.GrantUse(tool_id="c0", **used))
    async with opening(story.wait(asyncio.Event())) as console:
        await console.ask()
        approval = console.page.get_by_role("region", name="Approval")
        await approval.get_by_role("button", name="For this run").click()
        read_submit = await console.suite.script.first(agent_pb2.SubmitRequest)
        assert orjson.loads(read_submit.payload) == {"decision": "approve", "grant": "run"}
        await expect(console.page.get_by_text("wipe runs without asking")).to_be_visible()
