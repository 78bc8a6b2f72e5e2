"""Any chat: each request is valid and within the window by a true count, and nothing is omitted from it without a
trace.

A trace is a summary that names the line, a shortened form, or a notice. The provider reports false usage, the model
that writes summaries refuses, cuts, repeats itself, fails or is silent, and compactions and questions come at the same
time. HEADRACE_CHATS_MAX sets how many chats are tried (`python -m trials soak`: 200).
"""

import asyncio
import json
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from headrace.errors import Overloaded
from headrace.v1 import common_pb2, llm_pb2, memory_pb2
from services.runtime.tokens import count
from tests.support.memory.contexts import check_paired, limits, load, text_of
from tests.support.memory.messages import call, content, result, user
from tests.support.memory.summarising import CUT, LOOP, REFUSAL, SUMMARY, Answer, Summariser, compact, summarising
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

CHATS_MAX = int(os.environ.get("HEADRACE_CHATS_MAX", "8"))

SYSTEM = "You are of help."
TOOLS = [llm_pb2.ToolSchema(name="weather", description="Tells it.", parameters='{"type": "object"}')]
READERS = [
    llm_pb2.ToolSchema(name=name, description="Reads what is not shown any more. " * 8, parameters='{"type": "object"}')
    for name in ("read_history", "read_result")
]
SUBAGENT = "subagent-00000001"
OUTPUT = 1_000

SUMMARISED = re.compile(r"stands for lines (\d+) to (\d+) of its log")
SEEN_AGAIN = re.compile(r"read_history( \d+)? shows it again")
LEFT_OUT = re.compile(r"read_history (\d+)(?:-(\d+))? ha")

SILENCE = 60.0
ANSWERS: tuple[Answer, ...] = (SUMMARY, SUMMARY, REFUSAL, CUT, LOOP, "", Overloaded("no"), SILENCE)

KINDS = ("say", "steer", "call", "image", "plan", "sub-agent")

texts = st.tuples(
    st.sampled_from(["word ", "水は高きより低きに流れる。", "q7Zx", "<tag/>\n", "🌊", "слово и дело "]),
    st.sampled_from([0, 20, 400, 4_000]),
)
steps = st.tuples(st.sampled_from(KINDS), st.lists(texts, min_size=1, max_size=6), st.sampled_from([0, 20_000]))
runs = st.lists(st.tuples(texts, st.lists(steps, max_size=4)), min_size=1, max_size=4)


@dataclass(slots=True)
class Chat:
    """A chat as an orchestrator writes it; each text has its own number."""

    memory: Memory
    limits: memory_pb2.ModelLimits
    window: memory_pb2.WindowSettings
    lie: float
    id: str = field(default_factory=new_id)
    run_id: str = ""
    marked_lines: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Line number and mark of each text in the chat's main context."""
    marks: int = 0
    pictures: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    """Line number and data of each picture that the chat stores."""
    before: list[llm_pb2.Message] = field(default_factory=list[llm_pb2.Message])
    """The last request, made when `marked_count` texts had been marked."""
    marked_count: int = 0
    compactions: list[str] = field(default_factory=list[str])

    def mark(self, text: tuple[str, int]) -> str:
        self.marks += 1
        return f"#{self.marks}# " + text[0] * text[1]

    async def hold_run(self, question: tuple[str, int], turn_steps: list[Any]) -> None:
        """Hold a whole run; meanwhile compact what a cap or the previous run made due."""
        ended, was_past_cap = self.run_id, self.compactions and self.compactions[-1] == "due"
        if was_past_cap:
            self.compactions.pop()
        self.run_id = new_id()
        await self.append(self.mark(question), query=True)
        between = asyncio.create_task(self.compact(ended)) if was_past_cap else None
        for step in turn_steps:
            await self.take_turn()
            await self.take_step(*step)
        await self.take_turn()
        usage = common_pb2.Usage(input_tokens=max(1, int(self.lie * count_tokens(self.before))))
        await self.append(self.mark(("so", 1)), usage=usage)
        if between is not None:
            await between
        loaded = await self.load()
        await self.memory.append(self.id, self.run_id, run_line())
        if loaded.is_past_cap or loaded.compaction_due:
            self.compactions.append("due")

    async def hold_short_run(self) -> None:
        """Hold a run of a question and an answer without looking at its requests."""
        self.run_id = new_id()
        question, answer = self.mark(("word ", 30)), self.mark(("水は", 30))
        lines = [query_line(question), step_line(content(answer)), run_line()]
        reply = await self.memory.append(self.id, self.run_id, *lines)
        self.marked_lines += [(reply.first_n, question.split()[0]), (reply.first_n + 1, answer.split()[0])]

    async def append(self, text: str, *, query: bool = False, usage: common_pb2.Usage | None = None) -> None:
        line = query_line(text) if query else step_line(content(text, usage=usage, msg_id=new_id()))
        await self.write(line, text)

    async def write(self, line: memory_pb2.LogLine, *texts: str) -> None:
        reply = await self.memory.append(self.id, self.run_id, line)
        self.marked_lines += [(reply.first_n, text.split()[0]) for text in texts]

    async def take_step(self, kind: str, given: list[tuple[str, int]], size: int) -> None:
        match kind:
            case "say":
                await self.append(self.mark(given[0]))
            case "plan":
                text = self.mark(given[0])
                await self.write(step_line(content(text, msg_id=new_id()), stage="plan"), text)
            case "steer" | "image":
                message = user(self.mark(given[0]))
                for _ in range(len(given) if kind == "image" else 0):
                    message.message.content.add(image=llm_pb2.ImagePart(url="https://example.org/cat.png"))
                picture = b"\x89PNG" + str(self.marks).encode()
                if kind == "image":
                    message.message.content.add(image=llm_pb2.ImagePart(data=picture, mime_type="image/png"))
                await self.write(step_line(message), text_of(message.message))
                if kind == "image":
                    self.pictures.append((self.marked_lines[-1][0], picture))
            case "call":
                marked = [self.mark(text) for text in given]
                await self.write(step_line(*make_calls(marked, size)), *marked)
            case _:
                await self.ask_subagent(given, size)

    async def ask_subagent(self, given: list[tuple[str, int]], size: int) -> None:
        """Let a sub-agent work in its own context, which is compacted separately."""
        await self.memory.append(self.id, self.run_id, step_line(user("the task"), context_id=SUBAGENT))
        for text in given:
            own = step_line(*make_calls([text[0] * text[1]] * 2, size), context_id=SUBAGENT)
            await self.memory.append(self.id, self.run_id, own)
            loaded = await self.load(context_id=SUBAGENT)
            self.check_request(loaded)
            if loaded.compaction_due:
                await self.compact(self.run_id, context_id=SUBAGENT)
                self.check_request(await self.load(context_id=SUBAGENT))

    async def take_turn(self) -> None:
        """Load the next request, and again after a compaction if one is due; two callers compact at the same time."""
        loaded = await self.load()
        self.check_request(loaded)
        assert list(loaded.messages) != self.before or len(self.marked_lines) == self.marked_count, (
            "no request repeats the one before"
        )
        if loaded.compaction_due:
            _, meanwhile, _ = await asyncio.gather(self.compact(self.run_id), self.load(), self.compact(self.run_id))
            self.check_request(meanwhile)
            loaded = await self.load()
            self.check_request(loaded)
        self.before, self.marked_count = list(loaded.messages), len(self.marked_lines)
        self.check_traces(self.before)
        self.check_pictures(loaded)

    async def load(self, context_id: str = "") -> memory_pb2.LoadContextResponse:
        return await load(
            self.memory, self.id, self.run_id, context_id=context_id, system=SYSTEM, tools=TOOLS, history_tools=READERS,
            limits=self.limits, window=self.window, reminders=["It is noon."],
        )  # fmt: skip

    async def compact(self, run_id: str, context_id: str = "") -> None:
        compaction = await compact(
            self.memory, self.id, run_id, context_id=context_id, system=SYSTEM, tools=TOOLS,
            limits=self.limits, window=self.window,
        )  # fmt: skip
        assert compaction.kinds[-1] in ("complete", "fallback", "fail")
        self.compactions.append(compaction.kinds[-1])

    def check_request(self, loaded: memory_pb2.LoadContextResponse) -> None:
        check_paired(loaded.messages)
        assert [message.role for message in loaded.messages[:2]] == ["system", "user"]
        tools = [*TOOLS, *(READERS if loaded.has_left else [])]
        window = self.limits.context_window_tokens - OUTPUT
        assert count.count_request(loaded.messages, tools, "o200k_base") <= window

    def check_pictures(self, loaded: memory_pb2.LoadContextResponse) -> None:
        """Each picture is shown, or its replacement says how to see it again and the tools for that are offered."""
        shown_pictures = {part.image.data for message in loaded.messages for part in message.content}
        text = "\n".join(text_of(message) for message in loaded.messages)
        ranges = [(int(a), int(b or a)) for a, b in (*SUMMARISED.findall(text), *LEFT_OUT.findall(text))]
        readable = {int(n) if n else 0 for n in SEEN_AGAIN.findall(text)}
        for n, picture in self.pictures:
            is_summarised = any(first <= n <= last for first, last in ranges)
            assert picture in shown_pictures or is_summarised or {n, 0} & readable, (
                f"the picture of line {n} left no trace"
            )
        assert loaded.has_left or {picture for _, picture in self.pictures} <= shown_pictures

    def check_traces(self, messages: list[llm_pb2.Message]) -> None:
        text = "\n".join(text_of(message) for message in messages)
        ranges = [(int(a), int(b)) for a, b in SUMMARISED.findall(text)]
        ranges += [(int(a), int(b or a)) for a, b in LEFT_OUT.findall(text)]
        for n, mark in self.marked_lines:
            assert mark in text or any(first <= n <= last for first, last in ranges), (
                f"{mark} of line {n} left no trace"
            )


def make_calls(texts: list[str], size: int) -> list[memory_pb2.LogMessage]:
    """Make calls with long arguments, and their results."""
    arguments, msg_id = json.dumps({"text": "x" * size}), new_id()
    ids = [f"c{index}-{msg_id[:8]}" for index in range(len(texts))]
    calls = [call(call_id, arguments, msg_id=msg_id) for call_id in ids]
    return [*calls, *(result(call_id, text) for call_id, text in zip(ids, texts, strict=True))]


def count_tokens(messages: list[llm_pb2.Message]) -> int:
    return count.count_request(messages, (), "o200k_base")


async def hold_chat(
    script: list[Any], *, window: int, lie: float, older: str, answers: list[Answer], earlier: int = 0
) -> Chat:
    """Hold a chat of `earlier` short runs followed by those of `script`."""
    settings = memory_pb2.WindowSettings(runs_max=5, older=older)
    with tempfile.TemporaryDirectory() as name:
        async with summarising(Path(name), Summariser(*answers), summary_timeout_s=0.3) as memory:
            chat = Chat(memory, limits(window=window, output=OUTPUT, model="house-model"), settings, lie)
            for number in range(earlier):
                if number % 25:
                    await chat.hold_short_run()
                else:
                    await chat.hold_run(("word ", 30), [("call", [("水は", 200)], 0)])
            for question, turn_steps in script:
                await chat.hold_run(question, turn_steps)
            await chat.hold_run(("the end", 1), [])
    return chat


# A chat takes seconds: shrinking a failing one would take minutes.
@settings(max_examples=CHATS_MAX, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    script=runs,
    window=st.sampled_from([4_096, 8_192, 32_768, 200_000]),
    lie=st.sampled_from([0.01, 1, 100]),
    older=st.sampled_from(["summary", "summary", "drop"]),
    answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5),
    earlier=st.sampled_from([0, 0, 0, 12]),
)
# The plan hidden by the steering message is omitted with it.
@example(
    script=[
        (
            ("🌊", 20),
            [
                ("call", [("word ", 0)], 0),
                ("steer", [("🌊", 400)], 0),
                ("plan", [("🌊", 400)], 0),
                ("image", [("q7Zx", 4000)] * 6, 0),
            ],
        ),
        (("🌊", 400), []),
    ],
    window=4_096,
    lie=0.01,
    older="summary",
    answers=[SILENCE],
    earlier=0,
)
async def test_any_chat_makes_requests_that_fit_and_every_omission_leaves_a_trace(**given: Any) -> None:
    await hold_chat(**given)


@pytest.mark.nightly
async def test_a_chat_of_500_runs_makes_requests_that_fit_and_every_omission_leaves_a_trace() -> None:
    script = [(("word ", 400), [(kind, [("水は高きより低きに流れる。", 400)] * 3, 20_000) for kind in KINDS])]
    chat = await hold_chat(
        script, window=8_192, lie=100, older="summary", answers=[REFUSAL, CUT, SILENCE, SUMMARY], earlier=500
    )
    assert chat.compactions.count("complete") > 5, chat.compactions
