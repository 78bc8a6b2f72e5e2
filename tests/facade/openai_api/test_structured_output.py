"""Typed answers and forced tools through the official client; the orchestrator is scripted, all sockets are real."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from headrace.runs.parts import Block, BlockBegun, TextAdded
from headrace.v1 import agent_pb2
from services.facade.openai_api.events import RunEnded, RunEvent
from services.facade.openai_api.structured_output import keep_output
from tests.support.facade.openai_api import ANSWERED, FUNCTION, block, client, own_call, reset
from tests.support.facade.scripted import BLOCK, RUN, USAGE, Script, Step, answering, delta, opening
from tests.support.timing import within

ASK: dict[str, Any] = {"model": "helper", "messages": ANSWERED}
TOOLS: Any = [{"type": "function", "function": FUNCTION}, {"type": "function", "function": {"name": "barometer"}}]


class Place(BaseModel):
    city: str
    people: int


PARIS = '{"city": "Paris", "people": 2102650}'
PLACE = Place(city="Paris", people=2102650)


def complete(seq: int, output: str | None = PARIS, reason: str = "stop") -> Step:
    end = agent_pb2.RunComplete(run_id=RUN, finish_reason=reason, usage=USAGE, output=output)
    return delta(seq, run_complete=end)


def make_run_with_text() -> list[Step]:
    """Return a run that writes text, calls its own tool, and answers in the requested format."""
    half = len(PARIS) // 2
    return [
        *opening(),
        *block(4, BLOCK, "I ", "look."),
        *own_call(8),
        *block(12, f"{RUN}_c_2", " \n", PARIS[:half], PARIS[half:]),
        complete(17),
    ]


def make_fenced_run() -> list[Step]:
    return [*opening(), *block(4, BLOCK, "```json\n", PARIS, "\n```"), complete(9)]


def make_reset_run() -> list[Step]:
    return [*opening(), *block(4, BLOCK, '{"city"'), reset(7, 3), *block(8, f"{RUN}_c_2", PARIS), complete(11)]


RUNS = pytest.mark.parametrize("run", [make_run_with_text(), make_fenced_run()], ids=["talks before", "in a fence"])


@RUNS
async def test_a_completion_returns_the_object_unstreamed_and_streamed(tmp_path: Path, run: list[Step]) -> None:
    pieces = 0
    async with client(tmp_path, Script(query=run)) as (api, facade):
        whole = await api.chat.completions.parse(**ASK, response_format=Place)
        async with api.chat.completions.stream(**ASK, response_format=Place) as stream:
            async for event in stream:
                pieces += event.type == "content.delta"
            streamed = await stream.get_final_completion()
        query, _ = facade.script.requests
    assert whole.choices[0].message.parsed == streamed.choices[0].message.parsed == PLACE
    assert pieces == (3 if run == make_run_with_text() else 1), "what begins as JSON is streamed as it comes"
    assert json.loads(query.output_format.schema)["required"] == ["city", "people"]
    assert (query.output_format.name, query.output_format.strict) == ("Place", True)


@RUNS
async def test_a_response_returns_the_object_unstreamed_and_streamed(tmp_path: Path, run: list[Step]) -> None:
    async with client(tmp_path, Script(query=run)) as (api, facade):
        whole = await api.responses.parse(model="helper", input="Where?", text_format=Place)
        async with api.responses.stream(model="helper", input="Where?", text_format=Place) as stream:
            streamed = await stream.get_final_response()
        query, _ = facade.script.requests
    assert whole.output_parsed == streamed.output_parsed == PLACE
    assert query.output_format.name == "Place"


async def test_a_reset_answer_fails_only_the_stream(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=make_reset_run())) as (api, _):
        whole = await api.chat.completions.parse(**ASK, response_format=Place)
        with pytest.raises(openai.APIError, match="which a stream cannot take back"):
            async with api.chat.completions.stream(**ASK, response_format=Place) as stream:
                await stream.until_done()
    assert whole.choices[0].message.parsed == PLACE


async def test_a_reset_answer_in_a_stream_cancels_the_run(tmp_path: Path) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": Place.model_json_schema()}}
    async with client(tmp_path, Script(query=[*make_reset_run()[:-1], asyncio.Event()])) as (api, facade):
        stream = await api.chat.completions.create(**ASK, response_format=form, tools=TOOLS, stream=True)
        with pytest.raises(openai.APIError, match="which a stream cannot take back"):
            async for _ in stream:
                pass
        async with within(5):
            await facade.script.cancelled.wait()


async def test_a_long_answer_takes_time_linear_in_its_length() -> None:
    async def measure_cpu_s(deltas: int) -> float:
        async def say() -> AsyncGenerator[RunEvent]:
            block = Block("content", BLOCK, 1, ("", ""), is_answer=True)
            yield BlockBegun(1, block, is_again=False)
            for seq in range(deltas):
                yield TextAdded(seq, block, '{"a"', '{"a"')
            yield RunEnded(deltas, "stop")

        gc.disable()  # the whole suite's objects are not this answer's
        begun_s = time.thread_time()
        events = [event async for event in keep_output(say(), is_stream=False)]
        took_s = time.thread_time() - begun_s
        gc.enable()
        assert sum(len(event.text) for event in events if isinstance(event, TextAdded)) == 4 * deltas
        return took_s

    await measure_cpu_s(1_000)
    assert await measure_cpu_s(16_000) < 8 * await measure_cpu_s(4_000), "a text is not joined anew with each delta"


async def test_a_truncated_answer_reports_the_length_limit(tmp_path: Path) -> None:
    cut = [*opening(), *block(4, BLOCK, '{"city": "Par'), complete(7, None, "length")]
    async with client(tmp_path, Script(query=cut)) as (api, _):
        with pytest.raises(openai.LengthFinishReasonError):
            await api.chat.completions.parse(**ASK, response_format=Place)


TYPED = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.mark.parametrize(
    ("more", "schema"),
    [
        ({}, {"type": "object"}),
        ({"schema": None}, {"type": "object"}),
        ({"schema": {}}, {"type": "object"}),
        ({"schema": TYPED}, TYPED),
        ({"json_schema": {"name": "place", "schema": TYPED}}, TYPED),
    ],
)
async def test_an_object_may_be_wanted_of_any_form_or_of_that_of_a_schema(
    tmp_path: Path, more: dict[str, Any], schema: Any
) -> None:
    form: Any = {"type": "json_object"} | more
    async with client(tmp_path, Script(query=make_run_with_text())) as (api, facade):
        answer = await api.chat.completions.create(**ASK, response_format=form)
        (query,) = facade.script.requests
    assert answer.choices[0].message.content == PARIS
    assert json.loads(query.output_format.schema) == schema


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "grammar"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format"),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": None}}, "response_format"),
    ],
)
async def test_an_invalid_response_format_is_refused_by_its_field(tmp_path: Path, form: Any, param: str) -> None:
    async with client(tmp_path, Script()) as (api, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(**ASK, response_format=form)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("choice", "wanted", "offered"),
    [
        (None, "", ["thermometer", "barometer"]),
        ("auto", "", ["thermometer", "barometer"]),
        ("none", "", []),
        ("required", "required", ["thermometer", "barometer"]),
        ({"type": "function", "function": {"name": "barometer"}}, "barometer", ["thermometer", "barometer"]),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "barometer"}}],
                },
            },
            "required",
            ["barometer"],
        ),
    ],
)
async def test_a_completions_tool_choice_reaches_the_query(
    tmp_path: Path, choice: Any, wanted: str, offered: list[str]
) -> None:
    fields: dict[str, Any] = {} if choice is None else {"tool_choice": choice, "parallel_tool_calls": False}
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        await api.chat.completions.create(**ASK, tools=TOOLS, **fields)
        (query,) = facade.script.requests
    assert (query.tool_choice, [tool.name for tool in query.client_tools]) == (wanted, offered)
    assert query.HasField("parallel_tool_calls") == (choice is not None)


async def test_a_responses_tool_choice_reaches_the_query(tmp_path: Path) -> None:
    tools: Any = [{"type": "function"} | FUNCTION]
    choice: Any = {"type": "function", "name": "thermometer"}
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        await api.responses.create(model="helper", input="How warm?", tools=tools, tool_choice=choice)
        with pytest.raises(openai.BadRequestError) as caught:
            await api.responses.create(model="helper", input="?", tools=tools, tool_choice=choice | {"name": "clock"})
        query = facade.script.requests[0]
    assert query.tool_choice == "thermometer"
    assert caught.value.param == "tool_choice"
