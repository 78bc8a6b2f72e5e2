"""Chats whose context no longer fits into the model's window."""

from headrace.v1 import llm_pb2
from tests.support.orchestrator.steps import Step, call, content, summary
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event
from tests.support.timing import within

DONE: list[Step] = [llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason="stop"))]
"""A finish without usage: memory learns token counts from usage, and scripted numbers would mislead it."""

ANSWER = content("All ", "good.") + DONE
WORDS = "one two three four five six seven eight nine ten " * 13
"""About 150 tokens, or 170 with the time that follows."""

LARGE = WORDS * 7
"""A message that makes a chat larger than the window of SMALL."""

SMALL = llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=2200, output_tokens_max=200)
"""A model whose requests have at most 2,000 tokens, so a compaction is due from 1,600."""


def of_compaction(events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"].startswith("compaction.")]


def read_request_text(request: llm_pb2.ChatRequest) -> str:
    return "\n".join(part.text for message in request.messages for part in message.content)


async def fill(suite: Suite, times: int, agent: str = "react") -> None:
    """Ask until the context is nearly full, but no compaction is due yet."""
    for number in range(times):
        events = await suite.ask(f"{number}: {WORDS}", agent=agent)
        assert not of_compaction(events)


async def ask_until_compacted(suite: Suite, agent: str = "react") -> list[Event]:
    """Ask until a message exceeds the window and its run compacts before its first turn; return that run's events."""
    await fill(suite, 5, agent)
    events = await suite.ask(f"5: {LARGE}", agent=agent)
    assert of_compaction(events)
    return events


NEEDLE = "The code of the safe is 7713."


def call_once(suite: Suite, name: str, arguments: str) -> None:
    """Let the model call a tool once, and answer when it has the result."""
    asking = call(name, arguments, call_id=f"r{len(suite.llm.requests)}") + DONE
    suite.llm.reply = lambda request: ANSWER if request.messages[-1].role == "tool" else asking


async def compact_chat(suite: Suite, agent: str) -> None:
    """Mention NEEDLE in a message, and ask until the message is replaced by a summary."""
    suite.llm.models = [SMALL]
    suite.llm.aside["compact"] = summary("They spoke of the weather.")
    await suite.ask("hello", agent=agent)
    await suite.ask(NEEDLE, agent=agent)
    await suite.ask(WORDS * 7, agent=agent)
    async with within(60):
        while NEEDLE in str(suite.llm.requests[-1].messages):
            await suite.ask(WORDS, agent=agent)
