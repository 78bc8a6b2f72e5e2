"""What a provider's prefix cache finds again: all that a chat's requests have in common stands at their beginning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headrace.v1 import llm_pb2
from tests.support.orchestrator import Serve, answer, call_tool

PROMPT = "Be brief. " * 800
"""2,000 tokens, as an agent with some tools and skills has."""

ANSWER = answer("It was good. ", "They went home. " * 20)
WORDS = "one two three four five six seven eight nine ten " * 8


def serialize(request: llm_pb2.ChatRequest) -> bytes:
    """Return the request in the order in which providers read it."""
    parts = (llm_pb2.ChatRequest(tools=request.tools), *request.messages)
    return b"".join(part.SerializeToString(deterministic=True) for part in parts)


def measure_share(requests: Sequence[llm_pb2.ChatRequest]) -> float:
    """Return the share of all requests' bytes that stood at the beginning of the one before, too."""
    texts, shared = [serialize(request) for request in requests], 0
    for before, text in pairwise(texts):
        shared += next((at for at, (a, b) in enumerate(zip(before, text, strict=False)) if a != b), len(before))
    return shared / sum(map(len, texts))


async def test_the_time_stands_once_behind_each_question_and_requests_begin_alike(serve: Serve) -> None:
    async with serve(call_tool("look", "{}", call_id="c1"), ANSWER) as suite:
        await suite.ask("go", agent="react")
        await suite.ask("again", agent="react")
        requests = suite.llm.raw_requests
    asked = [message for message in requests[-1].messages if message.role == "user"]
    assert [len(message.content) for message in asked] == [2, 2]
    assert all(message.content[1].text.startswith("<system_reminder>\nCurrent time: 2") for message in asked)
    assert str(requests[-1]).count("Current time") == 2
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages


async def test_a_chat_of_twenty_runs_is_read_from_the_cache(serve: Serve) -> None:
    async with serve(ANSWER, react={"systemPrompt": PROMPT}) as suite:
        for number in range(20):
            await suite.ask(f"{number}: {WORDS}", agent="react")
        assert len({request.messages[0].SerializeToString() for request in suite.llm.raw_requests}) == 1
        assert measure_share(suite.llm.raw_requests) >= 0.9


async def test_a_run_of_twelve_steps_is_read_from_the_cache(serve: Serve) -> None:
    turns = [call_tool("look", f'{{"n":{n}}}', call_id=f"c{n}") for n in range(12)]
    async with serve(*turns, ANSWER, react={"maxSteps": 13, "systemPrompt": PROMPT}) as suite:
        suite.tools.result_chars = 200
        await suite.ask(WORDS * 10, agent="react")
        assert measure_share(suite.llm.raw_requests) >= 0.9
