"""Answers without a script: the model reasons, calls the fitting tool, and answers from its result."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

import orjson

from services.simulator.model.people import choose_people_call
from services.simulator.model.planner import answer_plan_prompt, choose_plan_call, narrow_to_task
from services.simulator.model.research import answer_tool_question, choose_web_call
from services.simulator.model.side_questions import answer_side_question
from services.simulator.model.sub_agents import choose_sub_agent_calls
from services.simulator.scripts.steps import Content, Reasoning, Reply, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from services.simulator.requests.model_request import ModelRequest

_WORDS = re.compile(r"[\u3040-\u9fff]|[^\s\u3040-\u9fff]+\s*|\s+")
_CITY = re.compile(r"\b(?:in|at|for|of)\s+([A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*)")
_CITY_BEFORE_WEATHER = re.compile(r"([\u4e00-\u9fff]{2,4}?)(?:市)?(?:今天|明天|现在)?的?(?:天气|时间|几点)")
_WEATHER = re.compile(r"\bweather\b|\bforecast\b|天气", re.IGNORECASE)
_TIME = re.compile(r"\bwhat time\b|\bthe time\b|\bdate\b|\bwhat day\b|几点|时间|日期", re.IGNORECASE)
_COMMAND = re.compile(r"`([^`]+)`")
_DEFAULT_CITY = "Shanghai"
_ECHO = (
    "You asked: “{}”. I am the simulated model, so I know little about it, but every word of this answer has come to "
    "you as its own delta."
)
_SUBJECT_CHARS_MAX = 120
_RESULT_CHARS_MAX = 2000
"""Characters of a result that the answer repeats."""


def build_reply(request: ModelRequest) -> Reply:
    if text := answer_side_question(request) or answer_tool_question(request) or answer_plan_prompt(request):
        return Reply(steps=(Content(content=split_words(text)),))
    if call := choose_plan_call(request):
        return Reply(steps=(_make_call(*call, 0),))
    request = narrow_to_task(request)
    if request.results:
        sentences = [f"{result.name} says: {_describe_result(result.content)}" for result in request.results]
        return Reply(
            steps=(
                _make_reasoning("The tool has answered; I can put it into words."),
                Content(content=split_words("\n\n".join(sentences))),
            )
        )
    calls: list[ToolCall] = []
    for index, (name, arguments) in enumerate(_choose_tools(request)):
        offered = request.tools[name]
        known = {key: value for key, value in arguments.items() if key in offered or not offered}
        calls.append(_make_call(name, known, index))
    if calls:
        names = " and ".join(call.tool_call for call in calls)
        return Reply(steps=(_make_reasoning(f"The question can be answered with {names}, so I call it first."), *calls))
    subject = " ".join(request.text.split())[:_SUBJECT_CHARS_MAX].rstrip("?!. ")
    return Reply(
        steps=(
            _make_reasoning("No tool is needed here; a short answer will do."),
            Content(content=split_words(_ECHO.format(subject))),
        )
    )


def split_words(text: str) -> tuple[str, ...]:
    """Cut `text` before each word, or character in scripts without spaces."""
    return tuple(_WORDS.findall(text))


def _make_reasoning(text: str) -> Reasoning:
    return Reasoning(reasoning=split_words(text))


def _make_call(name: str, arguments: Mapping[str, object], index: int) -> ToolCall:
    words = split_words(orjson.dumps(arguments).decode())
    return ToolCall(tool_call=name, id=f"call_{token_hex(4)}", index=index, arguments=words)


def _choose_tools(request: ModelRequest) -> Iterator[tuple[str, Mapping[str, object]]]:
    if calls := [*choose_sub_agent_calls(request)]:
        yield from calls
        return
    command = _COMMAND.search(request.text)
    if command and "_bash_" in request.tools:
        yield "_bash_", {"command": command[1]}
    weather = next((name for name in request.tools if "weather" in name.lower()), None)
    if weather and _WEATHER.search(request.text):
        yield weather, {"city": _find_city(request.text), "date": datetime.now(UTC).date().isoformat()}
    if "city_datetime" in request.tools and _TIME.search(request.text):
        yield "city_datetime", {"city": _find_city(request.text)}
    if call := choose_web_call(request):
        yield call
    if call := choose_people_call(request):
        yield call


def _find_city(text: str) -> str:
    if match := _CITY.search(text) or _CITY_BEFORE_WEATHER.search(text):
        return match[1]
    return _DEFAULT_CITY


def _describe_result(content: str) -> str:
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        data = None
    if isinstance(data, dict):
        content = ", ".join(f"{key} {value}" for key, value in data.items())
    return content[:_RESULT_CHARS_MAX]
