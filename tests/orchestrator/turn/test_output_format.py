"""Answers with an output format: who enforces it, what readers see of a wrong answer, and how runs end."""

import json
from typing import Any

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2, llm_pb2
from tests.support.orchestrator import Serve, Step, call, call_tool, content, finish
from tests.support.order import Event, fold

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
FORM = common_pb2.OutputFormat(schema=json.dumps(SCHEMA), name="place")
PARIS = '{"city": "Paris", "people": 2102650}'
WRONG = '{"city": "Paris"}'
IN_WORDS = [llm_pb2.ModelInfo(provider_key="scripted", model="m", capabilities=["tools"])]
"""A model that does not enforce a schema itself."""


def answer(*pieces: str, reason: str = "stop") -> list[Step]:
    return content(*pieces) + finish(reason)


def kinds(events: list[Event], *types: str) -> list[str]:
    return [event["type"] for event in events if event["type"] in types]


def read_text(events: list[Event]) -> str:
    blocks = fold(events)["blocks"].values()
    return "".join(block["text"] for block in blocks if block["kind"] == "content")


async def test_an_answer_matching_the_format_is_streamed_and_is_the_runs_output(serve: Serve) -> None:
    async with serve(answer('{"city": ', '"Paris", "people": 2102650}')) as suite:
        events = await suite.ask(output_format=FORM)
        assert suite.llm.requests[0].output_format == FORM
        async with suite.client.attach(suite.run_ids[0]) as deltas:
            deltas_of_late_reader = [delta async for delta in deltas]
    assert kinds(events, "content.delta", "attempt.reset") == ["content.delta"] * 2
    assert events[-1]["output"] == {"city": "Paris", "people": 2102650}
    assert deltas_of_late_reader[-1].run_complete.output == PARIS


async def test_an_answer_not_matching_the_format_is_reset_and_requested_once_more(serve: Serve) -> None:
    async with serve(answer(WRONG), answer(PARIS)) as suite:
        events = await suite.ask(output_format=FORM)
        first, second = suite.llm.requests
        history = await suite.client.chat(suite.chat_id)
    event_types = kinds(events, "content.start", "attempt.reset", "run.complete")
    assert event_types == ["content.start", "attempt.reset", "content.start", "run.complete"]
    assert read_text(events) == PARIS
    assert [message.role for message in second.messages[len(first.messages) :]] == ["assistant", "user"]
    assert '"people" is a required property' in second.messages[-1].content[0].text
    assert WRONG not in str(history)
    assert events[-1]["usage"]["modelCalls"] == 2


async def test_an_answer_of_a_model_without_schemas_is_sent_only_once_it_matches(serve: Serve) -> None:
    fenced = f"```json\n{PARIS}\n```"
    async with serve(answer("Here ", "you are: ", WRONG), answer(*fenced)) as suite:
        suite.llm.models = IN_WORDS
        events = await suite.ask(output_format=FORM)
    assert kinds(events, "content.start", "content.delta", "attempt.reset") == ["content.start", "content.delta"]
    assert read_text(events) == PARIS


@pytest.mark.parametrize("models", [[], IN_WORDS], ids=["held", "in words"])
async def test_a_second_wrong_answer_fails_the_run_naming_the_problem(
    serve: Serve, models: list[llm_pb2.ModelInfo]
) -> None:
    async with serve(answer(WRONG)) as suite:
        suite.llm.models = models
        events = await suite.ask(output_format=FORM)
        assert len(suite.llm.requests) == 2
        last = await suite.ask("and without?")
    assert events[-1]["error"]["code"] == "OUTPUT_MISMATCH"
    assert '"people" is a required property' in events[-1]["error"]["message"]
    assert last[-1]["type"] == "run.complete"


HALVES = '{"\\ud83d": 1}', '{"city": "\\ud83d", "people": 1}'
"""Half of a surrogate pair is no character."""


@pytest.mark.parametrize("models", [[], IN_WORDS], ids=["held", "in words"])
@pytest.mark.parametrize(
    "text", ["NaN", "[1, 2", "x", "null", '{"city": 1, "people": 2}', "[" * 200 + "]" * 200, *HALVES]
)
async def test_invalid_json_or_a_broken_schema_does_not_match(
    serve: Serve, text: str, models: list[llm_pb2.ModelInfo]
) -> None:
    async with serve(answer(text), answer(PARIS)) as suite:
        suite.llm.models = models
        events = await suite.ask(output_format=FORM)
    assert events[-1]["output"] == json.loads(PARIS), events[-1]
    assert read_text(events) == PARIS


async def test_text_next_to_tool_calls_need_not_match_the_format(serve: Serve) -> None:
    async with serve(content("I look.") + call("look") + finish("tool_calls"), answer(PARIS)) as suite:
        suite.llm.models = IN_WORDS
        events = await suite.ask(output_format=FORM)
        assert len(suite.llm.requests) == 2
    assert events[-1]["output"]["city"] == "Paris"
    assert "I look." in read_text(events)


async def test_an_answer_cut_by_length_has_no_output_and_no_error(serve: Serve) -> None:
    async with serve(answer('{"city": "Par', reason="length")) as suite:
        suite.llm.models = IN_WORDS
        events = await suite.ask(output_format=FORM)
    assert (events[-1]["finishReason"], events[-1].get("output")) == ("length", None)
    assert read_text(events) == '{"city": "Par'


async def test_with_second_pass_fix_only_the_second_answer_must_match(serve: Serve) -> None:
    async with serve(answer("no json"), answer(WRONG), answer(PARIS), verify="SECOND_PASS_FIX") as suite:
        events = await suite.ask(output_format=FORM)
        assert len(suite.llm.requests) == 3
    assert read_text(events) == PARIS
    assert events[-1]["output"]["city"] == "Paris"


async def test_the_agents_schema_applies_if_the_query_has_none(serve: Serve) -> None:
    numbers = common_pb2.OutputFormat(schema='{"type":"array","items":{"type":"number"}}')
    output = {"schema": SCHEMA, "name": "place", "strict": True}
    async with serve(answer(PARIS), answer("[1, 2.5]"), output=output) as suite:
        events = await suite.ask()
        other = await suite.ask(output_format=numbers)
        requested_format = suite.llm.requests[0].output_format
    assert events[-1]["output"]["city"] == "Paris"
    assert other[-1]["output"] == [1, 2.5]
    assert (json.loads(requested_format.schema), requested_format.name, requested_format.strict) == (
        SCHEMA,
        "place",
        True,
    )


async def test_an_invalid_schema_is_refused_before_the_run(serve: Serve) -> None:
    async with serve(answer(PARIS)) as suite:
        with pytest.raises(InvalidRequest, match="must be a JSON Schema") as caught:
            await suite.ask(output_format=common_pb2.OutputFormat(schema='{"type": "thing"}'))
        assert suite.llm.requests == []
    assert caught.value.metadata["field"] == "outputFormat.schema"


LOCATE = agent_pb2.ClientTool(name="locate")


@pytest.mark.parametrize(("choice", "offered"), [("required", "required"), ("look", "look"), ("auto", "auto")])
async def test_a_querys_tool_choice_applies_to_the_first_turn(serve: Serve, choice: str, offered: str) -> None:
    async with serve(call_tool("look"), answer("Done.")) as suite:
        await suite.ask(tool_choice=choice)
        assert [request.tool_choice for request in suite.llm.requests] == [offered, "auto"]


@pytest.mark.parametrize("agent", ["react", "oneshot"])
async def test_with_tool_choice_none_no_tool_is_called(serve: Serve, agent: str) -> None:
    async with serve(answer("Done.")) as suite:
        events = await suite.ask(agent=agent, tool_choice="none")
        assert [request.tool_choice for request in suite.llm.requests] == ["none" if agent == "react" else ""]
    assert events[-1]["type"] == "run.complete"


async def test_an_unknown_tool_choice_is_refused_naming_the_tool(serve: Serve) -> None:
    async with serve(answer("Done.")) as suite:
        events = await suite.ask(tool_choice="fly")
    assert events[-1]["error"]["code"] == "INVALID_REQUEST"
    assert "'fly' is neither none, auto, required nor a tool; tools: look, slow" in events[-1]["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "parallel"),
    [
        ({}, False),
        ({"client_tools": [LOCATE]}, True),
        ({"client_tools": [LOCATE], "parallel_tool_calls": False}, False),
    ],
)
async def test_client_tools_are_called_in_parallel_unless_the_query_forbids_it(
    serve: Serve, fields: dict[str, Any], parallel: bool
) -> None:
    async with serve(answer("Done.")) as suite:
        await suite.ask(**fields)
        assert suite.llm.requests[0].parallel_tool_calls == parallel
