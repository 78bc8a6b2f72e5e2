"""Compaction over real services: what it requests from a model, what it keeps, and what remains after a failure."""

from pathlib import Path

import pytest

from headrace.errors import Overloaded, StaleLease
from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from tests.support.memory.contexts import check_paired, limits, text_of, to_tuples
from tests.support.memory.engines import Serve
from tests.support.memory.messages import PICTURE, call, content, user
from tests.support.memory.summarising import (
    COST,
    LIMITS,
    SUMMARY,
    Summariser,
    compact,
    converse,
    lines_of,
    say_more,
    summarising,
    texts,
    work,
)
from tests.support.memory.writing import Memory, event_line, new_id, query_line, run_line, step_line
from tests.support.summaries import write_summary


async def test_compaction_replaces_old_messages_with_a_summary_and_retains_the_newest(folder: Path) -> None:
    summariser = Summariser(SUMMARY)
    async with summarising(folder, summariser) as memory:
        chat_id, run_id = await converse(memory)
        before = await memory.context(chat_id, run_id, system="You are")
        compaction = await compact(memory, chat_id, run_id, system="You are", turn=1)
        after = await memory.context(chat_id, run_id, system="You are")
    assert compaction.kinds == ["start", "usage", "complete"]
    assert compaction.usage == [COST]
    assert compaction.start == agent_pb2.CompactionStart(
        chat_id=chat_id, trigger="auto", pre_tokens=compaction.last.pre_tokens, turn=1
    )
    assert compaction.last.post_tokens < 0.4 * compaction.last.pre_tokens
    assert "They spoke of the weather." in text_of(after[1])
    assert "question 0" in text_of(after[1]), "the goal is pinned"
    # 41 messages: the last 20 % are 9, and a cut never parts a call from its result.
    assert after[0] == before[0]
    assert after[2:] == before[-9:]
    async with summarising(folder, summariser) as memory:
        assert await memory.context(chat_id, run_id, system="You are") == after


async def test_the_log_gets_a_boundary_line_and_a_summary_line(memory: Memory, folder: Path) -> None:
    chat_id, run_id = await converse(memory)
    compaction = await compact(memory, chat_id, run_id)
    *_, boundary, summary = lines_of(folder, chat_id)
    metadata = boundary.pop("compactMetadata")
    assert metadata.pop("receipt")["firstLine"] == 1
    assert metadata == {
        "trigger": "auto",
        "preTokens": compaction.last.pre_tokens,
        "postTokens": compaction.last.post_tokens,
        "filesIncluded": [],
        "strategy": "summary",
    }
    assert {key: boundary[key] for key in ("_type", "type", "subtype", "role", "content")} == {
        "_type": "compact_boundary",
        "type": "system",
        "subtype": "compact_boundary",
        "role": "system",
        "content": "Conversation compacted",
    }
    assert (summary["parentUuid"], summary["role"], summary["isCompactSummary"]) == (boundary["uuid"], "user", True)
    start = summary["_retainedFrom"]
    last_step, _, first = lines_of(folder, chat_id)[start["n"] - 3 : start["n"]]
    assert (first["_type"], start["message"]) == ("query", 0)
    assert summary["logicalParentUuid"] == last_step["uuid"]


async def test_the_summary_request_extends_the_contexts_own_messages(memory: Memory, summariser: Summariser) -> None:
    tools = [llm_pb2.ToolSchema(name="weather", parameters="{}")]
    chat_id, run_id = await converse(memory, 3)
    before = await memory.context(chat_id, run_id, system="You are")
    await compact(memory, chat_id, run_id, system="You are", tools=tools)
    (request,) = summariser.requests
    assert list(request.messages[:-1]) == before
    assert list(request.tools) == tools
    assert (request.model, request.tool_choice, request.temperature, request.stage) == (
        "gpt-4o",
        "none",
        0.2,
        "compact",
    )
    assert "<summary>" in text_of(request.messages[-1])


async def test_each_request_fits_into_the_summarisers_window(memory: Memory, summariser: Summariser) -> None:
    small = limits(2_000, 400, "gpt-4o-mini", "q")
    chat_id, run_id = await converse(memory, 30)
    compaction = await compact(memory, chat_id, run_id, summary_model=small)
    counted = await memory.call("LoadContext", chat_id=chat_id, run_id=run_id, limits=LIMITS)
    assert compaction.kinds[-1] == "complete"
    assert counted.tokens == compaction.last.post_tokens
    assert len(summariser.requests) > 1
    for request in summariser.requests:
        assert (request.provider_key, request.model) == ("q", "gpt-4o-mini")
        assert sum(len(text) for text in texts(request.messages)) < 1_600 * 6
        check_paired(request.messages)


async def test_without_a_gateway_compaction_falls_back_and_the_conversation_continues(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await converse(memory)
        compaction = await compact(memory, chat_id, run_id)
        assert (compaction.kinds, compaction.last.reason) == (["start", "fallback"], "PROVIDER_UNAVAILABLE")


async def test_a_fallback_keeps_the_previous_summary(memory: Memory, summariser: Summariser) -> None:
    summariser.answers = [SUMMARY, Overloaded("no")]
    chat_id, run_id = await converse(memory)
    assert (await compact(memory, chat_id, run_id)).kinds[-1] == "complete"
    await memory.append(chat_id, run_id, *say_more(20))
    assert (await compact(memory, chat_id, run_id)).kinds[-1] == "fallback"
    after = await memory.context(chat_id, run_id)
    assert "They spoke of the weather." in text_of(after[0])
    assert text_of(after[0]).count("<summary>") == 1
    assert text_of(after[1]) == "the last question", "it is being answered"


async def test_a_second_compaction_replaces_the_first_summary(folder: Path) -> None:
    second = write_summary("The second.")
    summariser = Summariser(SUMMARY, second)
    async with summarising(folder, summariser) as memory:
        chat_id, run_id = await converse(memory)
        await compact(memory, chat_id, run_id)
        between = await memory.context(chat_id, run_id)
        await work(memory, chat_id, run_id, 10)
        before = await memory.context(chat_id, run_id)
        compaction = await compact(memory, chat_id, run_id)
        after = await memory.context(chat_id, run_id)
    assert compaction.kinds[-1] == "complete"
    assert list(summariser.requests[1].messages[:-1]) == before
    assert "They spoke of the weather." in text_of(between[0])
    assert "The second." in text_of(after[0])
    assert "They spoke of the weather." not in text_of(after[0])
    assert text_of(after[1]) == "the last question"
    assert after[2:] == before[-len(after[2:]) :]
    async with summarising(folder, summariser) as memory:
        assert await memory.context(chat_id, run_id) == after


async def test_later_runs_start_with_the_summary_and_the_retained_messages(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY), chat_k=1) as memory:
        chat_id, run_id = await converse(memory)
        await compact(memory, chat_id, run_id)
        after = await memory.context(chat_id, run_id)
        for index in range(3):
            await memory.append(chat_id, run_id, step_line(content(f"answer {index}")), run_line())
            _, run_id = await memory.begin(f"later {index}", chat_id)
        later = await memory.context(chat_id, run_id)
    assert later[: len(after)] == after
    assert [text_of(message) for message in later[len(after) :]] == [
        "answer 0", "later 0", "answer 1", "later 1", "answer 2", "later 2",
    ]  # fmt: skip


async def test_an_earlier_run_than_the_compacting_one_keeps_its_whole_context(memory: Memory) -> None:
    chat_id, first = await converse(memory)
    before = await memory.context(chat_id, first)
    _, second = await memory.begin("waits", chat_id)
    await compact(memory, chat_id, second)
    assert await memory.context(chat_id, first) == before


async def test_the_context_of_a_sub_agent_is_compacted_separately(memory: Memory) -> None:
    own = {"context_id": "subagent-00000001"}
    chat_id, run_id = await memory.begin_with(step_line(user("the task"), **own), message="main")
    await work(memory, chat_id, run_id, 20, **own)
    main = await memory.context(chat_id, run_id)
    before = await memory.context(chat_id, run_id, **own)
    compaction = await compact(memory, chat_id, run_id, **own)
    after = await memory.context(chat_id, run_id, **own)
    assert compaction.kinds[-1] == "complete"
    assert await memory.context(chat_id, run_id) == main
    assert text_of(after[1]) == "the task"
    # 41 messages: 9 of them are four and a half pairs.
    assert after[2:] == before[-10:]


async def test_a_long_run_retains_the_message_it_answers(memory: Memory) -> None:
    steer = event_line(request_steer=agent_pb2.RequestSteer(message="and this"))
    chat_id, run_id = await memory.begin_with(steer, step_line(user("and this")), message="the goal")
    await work(memory, chat_id, run_id, 30)
    await compact(memory, chat_id, run_id)
    after = await memory.context(chat_id, run_id)
    assert [text_of(message) for message in after[1:3]] == ["and this", ""]
    assert "Intent:\n- and this\n\nFirst request:\n- the goal" in text_of(after[0])


async def test_the_summary_names_the_latest_goal_and_the_first_request(memory: Memory) -> None:
    """The user's last message is the goal; the first is quoted as the first request."""
    chat_id, run_id = await memory.begin_with(step_line(content("Which one?")), run_line(), message="Build a boat.")
    _, run_id = await memory.begin("Forget the boat, build a kite.", chat_id)
    await work(memory, chat_id, run_id, 30)
    await memory.append(chat_id, run_id, step_line(content("Done.", msg_id=new_id())), run_line())
    compaction = await compact(memory, chat_id, run_id)
    _, run_id = await memory.begin("Thanks.", chat_id)
    (summary, *_) = await memory.context(chat_id, run_id)
    assert "Intent:\n- Forget the boat, build a kite." in text_of(summary)
    assert list(compaction.last.receipt.pinned) == [
        "Intent: Forget the boat, build a kite.",
        "First request: Build a boat.",
    ]


async def test_open_tasks_calls_approvals_and_todos_are_pinned(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(*say_more(20), message="the goal")
    todos = '{"todos": [{"content": "buy milk", "status": "pending", "id": "1"}]}'
    await memory.call("UpdateState", chat_id=chat_id, state=todos)
    plan = memory_pb2.Plan(plan_id="p")
    plan.tasks.add(task_id="00000001", description="is done", status="completed")
    plan.tasks.add(task_id="00000002", description="is open", status="init")
    ask = agent_pb2.ApprovalAsk(approval_id="a1", tool_id="x1", reason="rm")
    answered = agent_pb2.ApprovalAsk(approval_id="a2", tool_id="x2", reason="ls")
    foreign = agent_pb2.ApprovalAsk(approval_id="a3", tool_id="x3", reason="of a sub-agent")
    elsewhere = memory_pb2.EventLine(
        context_id="subagent-00000001", event=agent_pb2.AgentDelta(seq=8, approval_ask=foreign)
    )
    await memory.append(
        chat_id,
        run_id,
        step_line(call("x1", '{"cmd": "rm"}'), call("x2"), plan=plan),
        event_line(seq=5, approval_ask=ask),
        event_line(seq=6, approval_ask=answered),
        event_line(seq=7, approval_answer=agent_pb2.ApprovalAnswer(approval_id="a2", decision="approve")),
        memory_pb2.LogLine(event=elsewhere),
    )
    await compact(memory, chat_id, run_id)
    summary, question, *others = await memory.context(chat_id, run_id)
    text = text_of(summary)
    assert "- 00000002: is open (init)" in text
    assert "is done" not in text
    assert '- weather {"cmd": "rm"} (x1)' in text
    assert "- x1: rm (a1)" in text
    assert "a2" not in text
    assert "of a sub-agent" not in text
    assert "Todos:\n- [pending] buy milk" in text
    assert text_of(question) == "the goal"
    check_paired(others)


async def test_the_summariser_receives_images(memory: Memory, summariser: Summariser) -> None:
    chat_id, run_id = await converse(memory)
    await memory.append(chat_id, run_id, step_line(user("look", PICTURE)))
    await compact(memory, chat_id, run_id)
    assert summariser.requests[0].messages[-2].content[1].image.data == b"\x89PNG"


async def test_files_are_sent_to_the_summariser_and_included_in_the_summary_as_far_as_they_fit(
    memory: Memory, summariser: Summariser
) -> None:
    files = [
        memory_pb2.ContextFile(path="big.txt", text="word " * 3_000),
        memory_pb2.ContextFile(path="small.py", text="x = 1", lines_omitted=7),
        memory_pb2.ContextFile(path="long.txt", text="\n".join(map(str, range(1500)))),
    ]
    chat_id, run_id = await converse(memory)
    compaction = await compact(memory, chat_id, run_id, files=files)
    (summary, *_) = await memory.context(chat_id, run_id)
    prompt = text_of(summariser.requests[0].messages[-1])
    assert "[File: big.txt]" in prompt
    assert "\n999\n[500 more lines: read_file with firstLine 1001 shows them]" in prompt
    assert "[File: small.py]\nx = 1\n[7 more lines: read_file with firstLine 2 shows them]" in text_of(summary)
    assert "[File: big.txt]\n[1 more lines:" in text_of(summary)
    assert "[File: long.txt]\n0\n1\n2\n" in text_of(summary)
    assert list(compaction.last.files_included) == ["small.py", "long.txt"]


async def test_a_chat_with_nothing_to_compact_is_unchanged_and_no_model_is_called(
    memory: Memory, summariser: Summariser, folder: Path
) -> None:
    chat_id, run_id = await memory.begin("hi")
    compaction = await compact(memory, chat_id, run_id, trigger="manual")
    assert (compaction.kinds, compaction.last.reason) == (["start", "fail"], "NOTHING_TO_COMPACT")
    assert not summariser.requests
    assert len(lines_of(folder, chat_id)) == 1


async def test_a_compaction_that_would_enlarge_a_small_chat_is_rejected(
    memory: Memory, summariser: Summariser, folder: Path
) -> None:
    summariser.answers = [write_summary(" ".join(map(str, range(200))))]
    chat_id, run_id = await memory.begin("hi")
    await memory.append(chat_id, run_id, step_line(content("hello"), content("there", msg_id="m_00000002")))
    compaction = await compact(memory, chat_id, run_id, trigger="manual")
    assert (compaction.kinds, compaction.last.reason) == (["start", "usage", "fail"], "NOTHING_TO_COMPACT")
    assert len(lines_of(folder, chat_id)) == 2


async def test_a_stale_owner_cannot_compact(memory: Memory) -> None:
    chat_id, run_id = await converse(memory)
    await memory.append(chat_id, run_id, step_line(content("taken over")), generation=2)
    before = await memory.context(chat_id, run_id)
    with pytest.raises(StaleLease):
        await compact(memory, chat_id, run_id, generation=1)
    assert await memory.context(chat_id, run_id) == before


async def test_the_compact_command_is_not_part_of_the_conversation(memory: Memory) -> None:
    chat_id, run_id = await converse(memory)
    await memory.append(chat_id, run_id, step_line(content("Yes.")), run_line())
    _, run_id = await memory.begin("/compact", chat_id)
    compaction = await compact(memory, chat_id, run_id, trigger="manual")
    await memory.append(chat_id, run_id, run_line())
    _, run_id = await memory.begin("go on", chat_id)
    after = await memory.context(chat_id, run_id)
    assert compaction.last.trigger == "manual"
    assert to_tuples(after)[-3:] == [("user", "the last question"), ("assistant", "Yes."), ("user", "go on")]


async def test_three_failures_in_a_row_open_the_runs_circuit_breaker(memory: Memory, summariser: Summariser) -> None:
    summariser.answers = [Overloaded("no")]
    chat_id, run_id = await memory.begin("goal")
    reasons: list[str] = []
    for _ in range(4):
        await memory.append(chat_id, run_id, *say_more(30))
        compaction = await compact(memory, chat_id, run_id)
        reasons.append(f"{compaction.kinds[-1]} {compaction.last.reason}")
    assert reasons == ["fallback OVERLOADED"] * 3 + ["fail TOO_MANY_FAILURES"]
    by_hand = await compact(memory, chat_id, run_id, trigger="manual")
    assert by_hand.kinds[-1] == "fallback"
    await memory.append(chat_id, run_id, run_line())
    await memory.append(chat_id, next_run := new_id(), query_line("next"))
    assert (await compact(memory, chat_id, next_run)).kinds[-1] == "fallback"


async def test_after_a_small_gain_compaction_is_not_due_before_the_context_grows(
    memory: Memory, summariser: Summariser
) -> None:
    tight = limits(1_500, 100)
    # Nearly as long as what it replaces.
    summariser.answers = [write_summary(" ".join(map(str, range(45))))]
    chat_id, run_id = await memory.begin("a question " * 400)

    async def is_due() -> bool:
        return (await memory.call("LoadContext", chat_id=chat_id, run_id=run_id, limits=tight)).compaction_due

    await memory.append(chat_id, run_id, *say_more(7))
    assert await is_due()
    compaction = await compact(memory, chat_id, run_id, limits=tight)
    assert compaction.kinds[-1] == "complete"
    assert compaction.last.post_tokens > 0.9 * compaction.last.pre_tokens
    await memory.append(chat_id, run_id, *say_more(1))
    assert not await is_due()
    await memory.append(chat_id, run_id, *say_more(3))
    assert await is_due()
