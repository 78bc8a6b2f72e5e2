"""Recap on the grid of its page: tokens of all that a provider is asked in a run, insights included."""

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.v1 import llm_pb2, tools_pb2
from services.runtime.tokens.count import count_request
from services.tools.builtin import BUILTIN
from tests.support.orchestrator import ANSWER, Serve, call_tool, content, finish

PROSE = "The quick brown fox jumps over the lazy dog, and nobody asks why; it is 12,345 times that it has. "

CORE = [
    tools_pb2.Tool(name=tool.name, description=tool.description, parameters=tool.parameters, kind="backend")
    for tool in BUILTIN
]
READ = next(tool for tool in CORE if tool.name == "read_file")
INSIGHTS = "\n".join(
    f"{number}. The fox has jumped over {number} dogs, and nobody asks why." for number in range(1, 25)
)


def count_tokens(requests: Sequence[llm_pb2.ChatRequest]) -> int:
    return sum(count_request(request.messages, request.tools, "o200k_base") for request in requests)


async def spend(serve: Serve, recap: dict[str, Any], tools: Sequence[tools_pb2.Tool], steps: int, chars: int) -> int:
    turns = [call_tool("read_file", f'{{"path":"chapter-{n}.md"}}', call_id=f"call_{n}") for n in range(steps)]
    agent = {
        "toolConfig": {"backends": [tool.name for tool in tools]},
        "react": {"maxSteps": steps, "systemPrompt": "Read the files of the workspace, then answer."},
        "budget": {"maxModelCalls": 100, "maxToolCalls": 100},
        "memory": {"recap": recap},
    }
    async with serve(*turns, ANSWER, **agent) as suite:
        suite.tools.tools += tools
        suite.llm.aside["insight"] = [*content(INSIGHTS), *finish()]
        texts = [(f"Chapter {n}. " + PROSE * 100)[:chars] for n in range(steps)]
        suite.tools.plays["read_file"] = [
            [tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result=text))] for text in texts
        ]
        await suite.ask("Who is the murderer?")
        return count_tokens([*suite.llm.raw_requests, *suite.llm.aside_requests])


@pytest.mark.parametrize("steps", [6, 12, 24])
@pytest.mark.parametrize("chars", [500, 2_000, 6_000])
@pytest.mark.parametrize("tools", [[READ], CORE], ids=["one", "core"])
async def test_recap_never_costs_and_saves_where_there_is_much(
    serve: Serve, steps: int, chars: int, tools: list[tools_pb2.Tool]
) -> None:
    without = await spend(serve, {}, tools, steps, chars)
    with_it = await spend(serve, {"enabled": True, "insights": "llm"}, tools, steps, chars)
    assert with_it <= 1.01 * without
    if steps >= 12 and chars >= 2_000:
        assert with_it <= 0.8 * without
