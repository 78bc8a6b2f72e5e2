"""Recall: facts of a long chat that a model can still access, and the cost of its requests, against three baselines.

Facts are planted in messages of the user, in answers and in the middle of long results. Each run loads its
context and compacts as an orchestrator does. The summariser forgets nearly everything, so that no fact is kept
by luck. At the end, each fact must be in the last request, or the request's tools must find it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.memory.lines import PROSE, TIMEOUT_S, answer, append, call, end, new_id, query, result, step
from benchmarks.memory.prefix_cost import PrefixCost
from benchmarks.memory.service import running
from benchmarks.memory.summariser import summarising
from benchmarks.memory.tables import table
from headrace.streams import reading
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.compaction.prompt import SECTIONS
from services.runtime.tokens import count

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

MESSAGES = (50, 200, 500, 2_000)

LIMITS = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=32_000, output_tokens=2_000)
SYSTEM = "You are an agent that helps with everything. " * 20
SYSTEM_TOKENS = count.count_text(SYSTEM, "o200k_base")
WINDOW = memory_pb2.WindowSettings()

FORGETFUL = "\n".join(f"{number}. {name}: much was said." for number, name in enumerate(SECTIONS, 1))

TOOLS = [llm_pb2.ToolSchema(name=name, parameters="{}") for name in ("read_history", "read_result")]

LAST_MESSAGES = 40
READ_CHARS = 4_000
"""Maximum length of a tool's answer, for a window of this size."""


@dataclass(frozen=True, slots=True)
class Needle:
    where: str
    """goal, pinned, said, answered or looked up."""
    words: str
    """Words for which a model searches."""
    value: str
    """Fact that it must find."""


@dataclass(slots=True)
class Recall:
    messages: int
    compactions: int = 0
    shown: dict[str, list[bool]] = field(default_factory=dict[str, "list[bool]"])
    """Whether each needle is in the last request, by where it was planted."""
    reached: list[bool] = field(default_factory=list[bool])
    in_last: list[bool] = field(default_factory=list[bool])
    """Whether each needle is among the last messages (a baseline)."""
    spent: PrefixCost = field(default_factory=PrefixCost)
    tokens_of_last: int = 0
    tokens_of_everything: int = 0

    @property
    def share_shown(self) -> float:
        return mean([found for each in self.shown.values() for found in each])


async def recall(folder: Path) -> Table:
    found = table(
        "Recall: planted facts that a model has or can read again",
        *("messages", "compactions", "reachable", "shown", "goal and pinned", "tokens", "cost"),
        *("last 40: shown", "tokens", "everything: tokens", "summary alone: shown"),
    )
    async with summarising(folder, FORGETFUL) as address, running(folder / "memory", address) as memory:
        for size in MESSAGES:
            done = await measure(memory.stub, size)
            whole = done.tokens_of_everything
            found.add_row(
                f"{size:,}",
                f"{done.compactions}",
                f"{mean(done.reached):.0%}",
                f"{done.share_shown:.0%}",
                f"{mean(done.shown['goal'] + done.shown['pinned']):.0%}",
                f"{done.spent.tokens / whole:.0%}",
                f"{done.spent.cost / whole:.0%}",
                f"{mean(done.in_last):.0%}",
                f"{done.tokens_of_last / whole:.0%}",
                f"{whole:,}",
                f"{mean([shown for where, each in done.shown.items() if where != 'pinned' for shown in each]):.0%}",
            )
    return found


async def measure(stub: MemoryServiceAsyncStub, messages: int) -> Recall:
    """Write a chat with `messages` messages and needles, and look for the needles."""
    done, chat_id, run_id = Recall(messages), new_id(), ""
    needles = {needle.value: needle for needle in _plant(messages)}
    tokens: list[int] = []
    """Tokens of each message so far."""
    texts: list[str] = []
    for asked, found, answered, pinned in _write_runs(messages, list(needles.values())):
        run_id = new_id()
        await append(stub, chat_id, run_id, query(asked))
        loaded = await _load(stub, chat_id, run_id)
        done.spent.add(loaded, TOOLS if loaded.has_left else ())
        for text in (asked, found, answered):
            if text:
                texts.append(text)
                tokens.append(count.count_text(text, "o200k_base") + 5)
        done.tokens_of_last += SYSTEM_TOKENS + sum(tokens[-LAST_MESSAGES:])
        done.tokens_of_everything += SYSTEM_TOKENS + sum(tokens)
        lines = [
            step(call(f"c{len(texts)}", "look", "{}", f"m_{len(texts):08}")),
            step(result(f"c{len(texts)}", "look", found)),
        ]
        await append(
            stub, chat_id, run_id, *(lines if found else []), step(answer(answered, f"n_{len(texts):08}")), end()
        )
        if pinned:
            n = (await _read(stub, chat_id, run_id, asked.partition(".")[0])).messages[0].n
            await stub.PinMessage(memory_pb2.PinMessageRequest(chat_id=chat_id, n=n), timeout=TIMEOUT_S)
        if loaded.compaction_due or loaded.is_past_cap:
            done.compactions += await _compact(stub, chat_id, run_id)
    last_id = new_id()
    await append(stub, chat_id, last_id, query("And now?"))
    loaded = await _load(stub, chat_id, last_id)
    shown = "\n".join(part.text for message in loaded.messages for part in message.content)
    for needle in needles.values():
        done.shown.setdefault(needle.where, []).append(needle.value in shown)
        offers = needle.value in shown or (loaded.has_left and await _find(stub, chat_id, last_id, needle))
        done.reached.append(offers)
        done.in_last.append(any(needle.value in text for text in texts[-LAST_MESSAGES:]))
    return done


def mean(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


def _plant(messages: int) -> Iterator[Needle]:
    for index in range(12):
        where = ("said", "answered", "looked up", "pinned")[index % 4]
        yield Needle(where, f"code locker {1000 + index}", f"K-{messages}-{index:03}-{index * 7919 % 1000:03}")
    yield Needle("goal", "code harbour", f"H-{messages}-000")


def _write_runs(messages: int, needles: list[Needle]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield each run: question, tool result (may be empty), answer, and whether the question is pinned."""
    runs = messages // 2
    *planted, goal = needles
    places = {1 + at * (runs - 2) // len(planted): needle for at, needle in enumerate(planted)}
    for index in range(runs):
        needle = places.get(index)
        fact = f" The {needle.words} is {needle.value}." if needle else ""
        where = needle.where if needle else ""
        start = f"Build a boat; the {goal.words} is {goal.value}." if index == 0 else f"Question {index}."
        asked = start + (fact if where in ("said", "pinned") else "") + " " + PROSE
        answered = f"Answer {index}. {PROSE}" + (fact if where == "answered" else "") + PROSE
        found = PROSE * 15 + fact + PROSE * 15 if where == "looked up" else PROSE * 20 if index % 7 == 3 else ""
        yield asked, found, answered, where == "pinned"


async def _load(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str) -> memory_pb2.LoadContextResponse:
    request = memory_pb2.LoadContextRequest(
        chat_id=chat_id,
        run_id=run_id,
        system=SYSTEM,
        window=WINDOW,
        limits=LIMITS,
        history_tools=TOOLS,
        reminders=[f"Current time: {run_id}"],
    )
    return await stub.LoadContext(request, timeout=TIMEOUT_S)


async def _compact(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str) -> int:
    request = memory_pb2.CompactRequest(
        chat_id=chat_id, run_id=run_id, trigger="auto", system=SYSTEM, window=WINDOW, limits=LIMITS, summary_only=True
    )
    async with reading(stub.Compact(request, timeout=TIMEOUT_S)) as deltas:
        return sum([delta.HasField("complete") async for delta in deltas])


async def _find(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str, needle: Needle) -> bool:
    found = await _read(stub, chat_id, run_id, needle.words)
    return any(needle.value in message.text for message in found.messages)


async def _read(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str, words: str) -> memory_pb2.ReadHistoryResponse:
    request = memory_pb2.ReadHistoryRequest(chat_id=chat_id, run_id=run_id, query=words, chars_max=READ_CHARS)
    return await stub.ReadHistory(request, timeout=TIMEOUT_S)
