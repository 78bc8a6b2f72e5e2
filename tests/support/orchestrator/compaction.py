"""Chats whose context no longer fits."""

from headrace.v1 import llm_pb2
from tests.support.orchestrator.steps import Step, call, content, summary
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event
from tests.support.timing import within

DONE: list[Step] = [llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason="stop"))]
"""Without usage: memory's counts follow what a provider reports, and a scripted figure would be far from them."""

ANSWER = content("All ", "good.") + DONE
WORDS = "one two three four five six seven eight nine ten " * 13
"""About 150 tokens; with the time behind it, 170."""

LARGE = WORDS * 7
"""What passes the window of SMALL, in a chat that it did not pass before."""

SMALL = llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=2200, output_tokens_max=200)
"""Its requests have 2,000 tokens at most, so that a compaction is due from 1,600 on."""


def of_compaction(events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"].startswith("compaction.")]


def told(request: llm_pb2.ChatRequest) -> str:
    return "\n".join(part.text for message in request.messages for part in message.content)


async def fill(suite: Suite, times: int, agent: str = "react") -> None:
    """Talk until the context is nearly full; nothing is due yet."""
    for number in range(times):
        events = await suite.ask(f"{number}: {WORDS}", agent=agent)
        assert not of_compaction(events)


async def compacted_at(suite: Suite, agent: str = "react") -> list[Event]:
    """Talk until a message passes the window, so that its run compacts before its first turn; its events."""
    await fill(suite, 5, agent)
    events = await suite.ask(f"5: {LARGE}", agent=agent)
    assert of_compaction(events)
    return events


NEEDLE = "The code of the safe is 7713."


def call_once(suite: Suite, name: str, arguments: str) -> None:
    """Have the model call a tool, and answer when it has the result."""
    asking = call(name, arguments, call_id=f"r{len(suite.llm.requests)}") + DONE
    suite.llm.reply = lambda request: ANSWER if request.messages[-1].role == "tool" else asking


async def compact_chat(suite: Suite, agent: str) -> None:
    """Plant the needle, and talk until it is summarised away."""
    suite.llm.models = [SMALL]
    suite.llm.aside["compact"] = summary("They spoke of the weather.")
    await suite.ask("hello", agent=agent)
    await suite.ask(NEEDLE, agent=agent)
    await suite.ask(WORDS * 7, agent=agent)
    async with within(60):
        while NEEDLE in str(suite.llm.requests[-1].messages):
            await suite.ask(WORDS, agent=agent)
