"""Recap: its settings, its insights and goals in the log, no trace when off; and how much a prefix cache can reuse."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from headrace.errors import Overloaded
from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.agents.definition import parse_agent
from services.orchestrator.agents.registry import Registry
from services.runtime.tokens.count import count_request
from services.tools.builtin import BUILTIN
from tests.support.orchestrator import (
    ANSWER,
    REACT,
    Serve,
    Step,
    Suite,
    answer,
    assert_paired,
    call_tool,
    content,
    finish,
)

ON = {"recap": {"enabled": True, "insightsWindowSize": 2}}
TURNS = 9


def make_turns(count: int = TURNS) -> list[list[Step]]:
    """Return this number of different calls, and an answer."""
    calls = [call_tool("look", f'{{"n":{n}}}', call_id=f"c{n}") for n in range(count)]
    return [*calls, ANSWER]


def max_steps(count: int = TURNS) -> dict[str, Any]:
    return {"react": {"maxSteps": count + 1}}


def read_lines(suite: Suite, tmp_path: Path, kind: str) -> list[str]:
    """Return the texts of the chat's log lines of one type."""
    log = next(tmp_path.rglob(f"{suite.chat_id}.json")).read_bytes()
    return [line["text"] for line in map(orjson.loads, log.splitlines()) if line["_type"] == kind]


def serialize(request: llm_pb2.ChatRequest) -> bytes:
    """Return the request as a provider's cache sees it."""
    parts = (llm_pb2.ChatRequest(tools=request.tools), llm_pb2.ChatRequest(messages=request.messages))
    return b"".join(part.SerializeToString(deterministic=True) for part in parts)


async def test_each_result_gets_an_insight_line_and_each_message_a_goal_line(serve: Serve, tmp_path: Path) -> None:
    async with serve(*make_turns(2), memory=ON) as suite:
        suite.tools.result_chars = 300
        await suite.ask("Find the tower. " + "x" * 300)
        await suite.ask("And the river?")
        previews = read_lines(suite, tmp_path, "insight")
        assert read_lines(suite, tmp_path, "intent") == [("Find the tower. " + "x" * 300)[:200], "And the river?"]
    assert previews[0] == '[look] seen {"n":0}' + "·" * (100 - len('seen {"n":0}'))


async def test_insights_replace_older_results_and_shrink_requests(serve: Serve) -> None:
    sizes: dict[bool, int] = {}
    for enabled in (False, True):
        async with serve(*make_turns(), memory={"recap": ON["recap"] | {"enabled": enabled}}, **max_steps()) as suite:
            suite.tools.result_chars = 900
            await suite.ask("go")
            for request in suite.llm.requests:
                assert_paired(request)
            sizes[enabled] = sum(request.ByteSize() for request in suite.llm.requests)
    assert sizes[True] < 0.8 * sizes[False]


async def test_disabled_recap_settings_do_not_change_requests(serve: Serve) -> None:
    requests_by_setting: list[list[bytes]] = []
    off = {"recap": {"enabled": False, "activePromptMaxTokens": 100, "insights": "llm", "maxRecursionDepth": 2}}
    for memory in ({}, off):
        async with serve(*make_turns(3), memory=memory) as suite:
            await suite.ask("go")
            requests_by_setting.append(
                [request.SerializeToString(deterministic=True) for request in suite.llm.requests]
            )
    assert requests_by_setting[0] == requests_by_setting[1]
    assert not any(b"system_reminder" in request for request in requests_by_setting[0])


@pytest.mark.parametrize("recap", [None, {"enabled": True, "insightsWindowSize": 50}])
async def test_each_turns_request_starts_with_the_previous_ones_bytes(serve: Serve, recap: Any) -> None:
    async with serve(*make_turns(), **({"memory": {"recap": recap}} if recap else {}), **max_steps()) as suite:
        await suite.ask("go")
        requests = [serialize(request) for request in suite.llm.raw_requests]
    for earlier, later in pairwise(requests):
        assert later.startswith(earlier)
        assert len(later) > len(earlier)


BY_MODEL = {"recap": ON["recap"] | {"insights": "llm"}}


async def test_a_model_writes_insights_when_first_needed_and_the_run_is_charged(serve: Serve, tmp_path: Path) -> None:
    async with serve(*make_turns(), memory=BY_MODEL, **max_steps(14)) as suite:
        suite.tools.result_chars = 900
        forms = ["{}.", "**{}.**", "- {})", "{}、", "**{}**:", " {}. "]
        said = (f"{form.format(n)} The tower is {n} m high.\n" for n, form in enumerate(forms, 1))
        suite.llm.aside["insight"] = [*content(*said), *finish()]
        events = await suite.ask("go")
        written = [f"[look] The tower is {n} m high." for n in range(1, 7)]
        assert read_lines(suite, tmp_path, "insight")[:6] == written
        first, *_ = suite.llm.aside_requests
        requests = suite.llm.raw_requests
        assert events[-1]["usage"]["modelCalls"] == len(requests) + len(suite.llm.aside_requests)
    assert first.messages[1].content[0].text.startswith('1. look:\nseen {"n":0}·')
    results = [[message for message in request.messages if message.role == "tool"] for request in requests]
    assert all("·" in result.content[0].text for result in results[6]), "no result is replaced yet"
    assert [result.content[0].text.partition(" [900")[0] for result in results[7][:6]] == written
    assert [event["delta"] for event in events if event["type"] == "content.delta"] == ["All ", "good."]


async def test_a_model_may_set_a_new_goal(serve: Serve, tmp_path: Path) -> None:
    async with serve(ANSWER, memory=BY_MODEL) as suite:
        await suite.ask("Find the tower.")
        assert suite.llm.aside_requests == []
        for answer, message in (("SAME", "And its height?"), ("**new**", "Now cook."), ("", "And salt?")):
            suite.llm.aside["goal"] = content(answer) + finish()
            events = await suite.ask(message)
            assert events[-1]["usage"]["modelCalls"] == 2
        suite.llm.aside["goal"] = [Overloaded("no")]
        assert (await suite.ask("And?"))[-1]["type"] == "run.complete"
        await suite.ask("/compact")
        assert read_lines(suite, tmp_path, "intent") == ["Find the tower.", "Now cook."]
        goal_requests = suite.llm.aside_requests
    assert goal_requests[1].messages[1].content[0].text == "Find the tower.\n\nAnd its height?\n\nNow cook."


@pytest.mark.parametrize(
    "written",
    [
        [Overloaded("no")],
        content("nothing of use") + finish(),
        finish(),
        content("9" * 5000, ". x\n1.", "\n" * 100_000),
    ],
)
async def test_an_insight_the_model_fails_to_write_is_a_preview(serve: Serve, tmp_path: Path, written: Any) -> None:
    async with serve(*make_turns(7), memory=BY_MODEL, **max_steps(14)) as suite:
        suite.tools.result_chars = 900
        suite.llm.aside["insight"] = written
        events = await suite.ask("go")
        previews = [f'[look] seen {{"n":{n}}}' for n in range(6)]
        assert [line.rstrip("·") for line in read_lines(suite, tmp_path, "insight")] == previews
    assert events[-1]["type"] == "run.complete"


async def test_the_last_model_call_of_a_budget_is_kept_for_the_turn(serve: Serve, tmp_path: Path) -> None:
    async with serve(*make_turns(7), memory=BY_MODEL, budget={"maxModelCalls": 8}, **max_steps(14)) as suite:
        suite.tools.result_chars = 900
        events = await suite.ask("go")
        assert len(read_lines(suite, tmp_path, "insight")) == 6
    assert suite.llm.aside_requests == []
    assert events[-1]["finishReason"] == "stop"


def test_a_prompt_larger_than_the_recap_limit_is_logged_on_reload(tmp_path: Path) -> None:
    for key, enabled in (("on", True), ("off", False)):
        recap = {"enabled": enabled, "activePromptMaxTokens": 50}
        agent = REACT | {"memory": {"recap": recap}, "react": {"systemPrompt": "word " * 80}}
        (tmp_path / f"{key}.json").write_bytes(orjson.dumps(agent))
    registry = Registry(tmp_path)
    with capture_logs() as logs:
        registry.reload()
    [warning] = [line for line in logs if line["log_level"] == "warning"]
    assert (warning["event"], warning["file"]) == ("prompt larger than activePromptMaxTokens", "on.json")
    assert 25 <= warning["tokens_over"] <= 35
    assert [agent.key for agent in registry.all()] == ["off", "on"]


@pytest.mark.parametrize(
    ("budget", "recap", "depth"),
    [({}, {}, None), ({}, {"maxRecursionDepth": 3}, 3), ({"maxDepth": 2}, {"maxRecursionDepth": 3}, 2)],
)
def test_max_recursion_depth_of_recap_limits_the_depth(budget: Any, recap: Any, depth: int | None) -> None:
    agent = parse_agent(orjson.dumps(REACT | {"budget": budget, "memory": {"recap": recap}}), "a")
    assert agent.limits.max_depth == depth


PROMPT = "Be brief. " * 800
"""2,000 tokens, like the prompt of an agent with some tools and skills."""

LONG_ANSWER = answer("It was good. ", "They went home. " * 20)
WORDS = "one two three four five six seven eight nine ten " * 8


def measure_share(requests: Sequence[llm_pb2.ChatRequest]) -> float:
    """Return the share of all requests' bytes that repeat the beginning of the previous request."""
    texts, shared = [serialize(request) for request in requests], 0
    for before, text in pairwise(texts):
        shared += next(
            (position for position, (a, b) in enumerate(zip(before, text, strict=False)) if a != b), len(before)
        )
    return shared / sum(map(len, texts))


async def test_each_question_has_the_time_once_and_requests_share_their_prefix(serve: Serve) -> None:
    async with serve(call_tool("look", "{}", call_id="c1"), LONG_ANSWER) as suite:
        await suite.ask("go", agent="react")
        await suite.ask("again", agent="react")
        requests = suite.llm.raw_requests
    user_messages = [message for message in requests[-1].messages if message.role == "user"]
    assert [len(message.content) for message in user_messages] == [2, 2]
    assert all(message.content[1].text.startswith("<system_reminder>\nCurrent time: 2") for message in user_messages)
    assert str(requests[-1]).count("Current time") == 2
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages


async def test_requests_of_twenty_runs_repeat_nine_tenths_of_their_bytes(serve: Serve) -> None:
    async with serve(LONG_ANSWER, react={"systemPrompt": PROMPT}) as suite:
        for number in range(20):
            await suite.ask(f"{number}: {WORDS}", agent="react")
        assert len({request.messages[0].SerializeToString() for request in suite.llm.raw_requests}) == 1
        assert measure_share(suite.llm.raw_requests) >= 0.9


async def test_requests_of_twelve_steps_repeat_nine_tenths_of_their_bytes(serve: Serve) -> None:
    turns = [call_tool("look", f'{{"n":{n}}}', call_id=f"c{n}") for n in range(12)]
    async with serve(*turns, LONG_ANSWER, react={"maxSteps": 13, "systemPrompt": PROMPT}) as suite:
        suite.tools.result_chars = 200
        await suite.ask(WORDS * 10, agent="react")
        assert measure_share(suite.llm.raw_requests) >= 0.9


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


async def count_spent_tokens(
    serve: Serve, recap: dict[str, Any], tools: Sequence[tools_pb2.Tool], steps: int, chars: int
) -> int:
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
async def test_recap_never_adds_tokens_and_saves_them_for_long_results(
    serve: Serve, steps: int, chars: int, tools: list[tools_pb2.Tool]
) -> None:
    without = await count_spent_tokens(serve, {}, tools, steps, chars)
    with_it = await count_spent_tokens(serve, {"enabled": True, "insights": "llm"}, tools, steps, chars)
    assert with_it <= 1.01 * without
    if steps >= 12 and chars >= 2_000:
        assert with_it <= 0.8 * without
