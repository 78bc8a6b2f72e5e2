"""Whatever is appended, cancelled, asked, compacted, reverted, rolled back, forked and deleted in whatever order: the
next request is valid, and a restart changes nothing of it.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.errors import ChatBusy, NotFound, OutOfRange, Overloaded, StaleLease
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.context.window.context_view import UNBOUNDED
from tests.memory.compaction.summarising import SUMMARY, Compacted, Summariser, compact, summarising
from tests.memory.context.test_context import call_ids, check_paired, log_messages, text_of
from tests.support.memory.writing import Memory, call, content, new_id, query_line, result, run_line, step_line
from tests.support.pairing import assert_paired

CONTEXTS = ("", "subagent-00000001")
LIMITS = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=100_000, output_tokens=100)
ALL: dict[str, Any] = {"message_history_max": 100}
LONG = (content("word " * 200, msg_id="m_long"), call("t_last", msg_id="m_last"), result("t_last", "long " * 200))

runs = st.integers(0, 2)
contexts = st.sampled_from(CONTEXTS)
events = st.one_of(
    st.tuples(st.just("append"), runs, contexts, st.lists(log_messages, min_size=1, max_size=6)),
    st.tuples(st.just("compact"), runs, contexts, st.sampled_from([SUMMARY, "", Overloaded("no")])),
    st.tuples(st.just("end"), runs, st.just(""), st.none()),
    st.tuples(st.just("cancel"), runs, contexts, st.lists(st.builds(call, call_ids), max_size=3)),
    st.tuples(st.just("fork"), st.integers(1, 12), st.just(""), st.none()),
    st.tuples(st.just("delete"), runs, st.just(""), st.none()),
    st.tuples(st.just("ask"), runs, st.just(""), st.none()),
    st.tuples(st.just("revert"), st.integers(0, 9), st.just(""), st.sampled_from(["all", "model"])),
)


def openai_form(messages: list[llm_pb2.Message]) -> list[dict[str, Any]]:
    return [
        {
            "role": message.role,
            "tool_call_id": message.tool_call_id,
            "tool_calls": [{"id": c.id} for c in message.tool_calls],
        }
        for message in messages
    ]


class Chat:
    """A chat that things happen to."""

    def __init__(self, memory: Memory, summariser: Summariser) -> None:
        self.memory, self.summariser = memory, summariser
        self.id = new_id()
        self.runs: list[str] = []

    async def ask(self) -> None:
        self.runs.append(new_id())
        await self.memory.append(self.id, self.runs[-1], query_line("hi " * 50))

    async def meet(self, what: str, run: int, context_id: str, given: Any) -> None:
        run_id = self.runs[run % len(self.runs)]
        own = {"context_id": context_id} if context_id else {}
        try:
            match what:
                case "append":
                    await self.memory.append(self.id, run_id, step_line(*given, **own))
                case "end":
                    await self.memory.append(self.id, run_id, run_line())
                case "cancel":
                    lines = [step_line(*given, **own)] if given else []
                    await self.memory.append(self.id, run_id, *lines, run_line("cancelled"))
                case "fork":
                    await self.fork(run)
                case "delete":
                    await self.delete()
                case "ask":
                    await self.ask()
                case "revert":
                    await self.revert(run, given, run_id)
                case _:
                    await self.compact(run_id, own, given)
        except StaleLease:
            pass  # the run has ended
        except NotFound:
            pass  # no such checkpoint, or a run that was reverted
        except ChatBusy:
            pass  # a run goes on
        except OutOfRange:
            pass  # the chat has fewer lines than were to be copied

    async def fork(self, n: int) -> None:
        """Copy the first `n` lines, and go on in the copy."""
        before = await self.contexts()
        copy = await self.memory.fork(self.id, seq=n)
        assert await self.contexts() == before, "the two go their own ways"
        self.id = copy
        starts = (event.run_start for event in (await self.memory.chat(chat_id=copy)).events)
        self.runs = [start.run_id for start in starts if start.run_id]
        await self.ask()

    async def revert(self, checkpoint: int, scope: str, run_id: str) -> None:
        """Take back what a run is before, or once all have ended anything."""
        if scope == "all":
            await self.end_all()
            run_id = ""
        await self.memory.revert(self.id, checkpoint, scope=scope, run_id=run_id)

    async def end_all(self) -> None:
        for run_id in self.runs:
            with suppress(StaleLease, NotFound):
                await self.memory.append(self.id, run_id, run_line("cancelled"))

    async def delete(self) -> None:
        """End all runs, delete the chat, and begin it anew."""
        await self.end_all()
        await self.memory.delete(self.id)
        assert await self.contexts() == []
        self.runs = []
        await self.ask()

    async def compact(self, run_id: str, own: dict[str, str], answer: Any) -> None:
        before = await self.memory.context(self.id, run_id, **ALL, **own)
        self.summariser.answers = [answer]
        done = await compact(self.memory, self.id, run_id, limits=LIMITS, **ALL, **own)
        after = await self.memory.context(self.id, run_id, **ALL, **own)
        check_compacted(done, before, after)

    async def contexts(self) -> list[list[llm_pb2.Message]]:
        """The contexts of all runs, and of a sub-agent in each."""
        found: list[list[llm_pb2.Message]] = []
        for run_id in self.runs:
            for context_id in CONTEXTS:
                own = {"context_id": context_id} if context_id else {}
                with suppress(NotFound):  # it was reverted
                    found.append(await self.memory.context(self.id, run_id, **own))
        return found


def check_compacted(done: Compacted, before: list[llm_pb2.Message], after: list[llm_pb2.Message]) -> None:
    if done.kinds[-1] == "fail":
        assert after == before
        return
    assert "The conversation was compacted" in text_of(after[0])
    assert len(after) <= 1 + len(before)
    rest = after[1:]
    whole = 0
    while whole < len(rest) and rest[-1 - whole] == before[-1 - whole]:
        whole += 1
    assert len(rest) - whole <= 1, "the retained are the last of what was there"
    assert len(rest) == whole or rest[0].role == "user", "behind what they answer"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(events, max_size=8), min_size=1, max_size=3))
async def test_any_order_of_events_leaves_valid_requests(lives: list[list[Any]]) -> None:
    """Each inner list is what happens between two starts of the service."""
    summariser = Summariser(SUMMARY)
    before: list[list[llm_pb2.Message]] = []
    chat: Chat | None = None
    with tempfile.TemporaryDirectory() as name:
        for happened in [*lives, []]:
            async with summarising(Path(name), summariser, chat_k=UNBOUNDED.runs_max) as memory:
                if chat is None:
                    chat = Chat(memory, summariser)
                    for _ in range(3):
                        await chat.ask()
                else:
                    chat.memory = memory
                    assert await chat.contexts() == before, "a restart changes nothing"
                for event in happened:
                    await chat.meet(*event)
                    for context in await chat.contexts():
                        check_paired(context)
                        assert_paired(openai_form(context))
                before = await chat.contexts()


async def grow(memory: Memory, chat_id: str, run_id: str, steps: list[list[memory_pb2.LogMessage]]) -> None:
    """Append `steps`, and so much more that there is something to compact."""
    await memory.append(chat_id, run_id, step_line(content("word " * 600, msg_id=new_id())))
    for messages in steps:
        await memory.append(chat_id, run_id, step_line(*messages))
    await memory.append(chat_id, run_id, step_line(*LONG))


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(log_messages, min_size=1, max_size=4), min_size=10, max_size=20), st.integers(1, 2))
async def test_after_a_crash_between_the_two_lines_it_is_as_if_nobody_had_compacted(
    steps: list[list[memory_pb2.LogMessage]], times: int
) -> None:
    summariser = Summariser(SUMMARY)
    with tempfile.TemporaryDirectory() as name:
        async with summarising(Path(name), summariser) as memory:
            chat_id, run_id = await memory.begin("hi " * 50)
            file = Path(name) / f"{chat_id}.json"
            half = len(steps) // 2
            if times == 2:
                await grow(memory, chat_id, run_id, steps[:half])
                assert (await compact(memory, chat_id, run_id, limits=LIMITS)).kinds[-1] == "complete"
            await grow(memory, chat_id, run_id, steps[half:])
            before, uncompacted = await memory.context(chat_id, run_id), file.read_bytes()
            done = await compact(memory, chat_id, run_id, limits=LIMITS)
            assume(done.kinds[-1] == "complete")  # short steps may leave nothing to gain
            after, whole = await memory.context(chat_id, run_id), file.read_bytes()
        check_compacted(done, before, after)
        boundary = whole.index(b"\n", len(uncompacted)) + 1
        for cut in (boundary, boundary - 1, (boundary + len(whole)) // 2, len(whole) - 1):
            file.write_bytes(whole[:cut])
            async with summarising(Path(name), summariser) as memory:
                assert await memory.context(chat_id, run_id) == before
                done = await compact(memory, chat_id, run_id, limits=LIMITS)
                assert done.kinds[-1] == "complete", "it can be done again"
                assert await memory.context(chat_id, run_id) == after


@settings(max_examples=15, deadline=None)
@given(st.data())
async def test_any_prefix_of_a_compacted_log_and_a_user_message_make_a_valid_request(data: st.DataObject) -> None:
    summariser = Summariser(SUMMARY)
    with tempfile.TemporaryDirectory() as name:
        async with summarising(Path(name), summariser) as memory:
            chat = Chat(memory, summariser)
            await chat.ask()
            for _ in range(2):
                for _ in range(6):
                    pieces = data.draw(st.lists(log_messages, min_size=1, max_size=4))
                    await memory.append(chat.id, chat.runs[0], step_line(*pieces))
                await chat.compact(chat.runs[0], {}, SUMMARY)
        file = Path(name) / f"{chat.id}.json"
        whole = file.read_bytes()
        for cut in [index + 1 for index, byte in enumerate(whole) if byte == 10]:
            file.write_bytes(whole[:cut])
            async with summarising(Path(name), summariser) as memory:
                _, run_id = await memory.begin("and now", chat.id)
                context = await memory.context(chat.id, run_id)
                check_paired(context)
                assert text_of(context[-1]) == "and now"
