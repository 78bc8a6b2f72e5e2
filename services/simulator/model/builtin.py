"""Answers without a script: the model reasons, calls the fitting tool, and answers from its result.

Load models: `bench-64x20ms` streams 64 deltas 20 ms apart; `idle` sends nothing after the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from secrets import token_hex

import orjson

from services.simulator.model.own_tools import (
    choose_named_call,
    choose_people_call,
    choose_repair,
    choose_sub_agent_calls,
)
from services.simulator.model.planner import (
    answer_plan_prompt,
    choose_plan_call,
    draft_plan,
    narrow_to_task,
    suggest_packing,
)
from services.simulator.model.research import (
    answer_tool_question,
    choose_page,
    choose_python_call,
    choose_report,
    choose_web_call,
)
from services.simulator.model.results import describe_results
from services.simulator.model.side_questions import answer_from_facts, answer_side_question, choose_memory_call
from services.simulator.model_request import ModelRequest
from services.simulator.script import TIMES_MAX, Content, Reasoning, Repeat, Reply, Stall, ToolCall

_WORDS = re.compile(r"[\u3040-\u9fff]|[^\s\u3040-\u9fff]+\s*|\s+")
_CITY = re.compile(r"\b(?:in|at|to|for|of)\s+([A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*)")
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

_BENCH = re.compile(r"bench(?:-(?P<deltas>[1-9]\d{0,6})x(?P<pace_ms>\d{1,6})ms)?")
_TEXT = " headrace"


def build_reply(request: ModelRequest) -> Reply:
    if text := answer_side_question(request) or answer_tool_question(request):
        return _make_answer("", text)
    if draft := draft_plan(request):
        return _make_answer(*draft)
    if text := answer_plan_prompt(request):
        return _make_answer("", text)
    if call := choose_plan_call(request):
        return Reply(steps=(_make_call(*call, 0),))
    request = narrow_to_task(request)
    if call := choose_page(request) or choose_report(request) or choose_repair(request):
        reasoning = _make_reasoning(f"That was the first step; {call[0]} makes the next one.")
        return Reply(steps=(reasoning, _make_call(*call, 0)))
    if request.results:
        return _make_answer("The tools have answered; I can put it into words.", describe_results(request.results))
    calls: list[ToolCall] = []
    for index, (name, arguments) in enumerate(_choose_tools(request) if request.may_call else ()):
        offered = request.tools[name]
        known = {key: value for key, value in arguments.items() if key in offered or not offered}
        calls.append(_make_call(name, known, index))
    if calls:
        return Reply(steps=(_make_reasoning(_explain_calls(calls)), *calls))
    if text := suggest_packing(request):
        return _make_answer("What to pack depends on the weather.", text)
    if text := answer_from_facts(request):
        return _make_answer("That is in my notes about the user.", text)
    subject = " ".join(request.text.split())[:_SUBJECT_CHARS_MAX].rstrip("?!. ")
    return _make_answer("No tool is needed here; a short answer will do.", _ECHO.format(subject))


def split_words(text: str) -> tuple[str, ...]:
    """Cut `text` before each word, or character in scripts without spaces."""
    return tuple(_WORDS.findall(text))


def _make_answer(reasoning: str, text: str) -> Reply:
    content = Content(content=split_words(text))
    return Reply(steps=(_make_reasoning(reasoning), content) if reasoning else (content,))


def _explain_calls(calls: list[ToolCall]) -> str:
    names = " and ".join(dict.fromkeys(call.tool_call for call in calls))
    if len(calls) > 1 and len({call.tool_call for call in calls}) == 1:
        return f"The question has {len(calls)} parts that do not depend on each other: {names} for each, all at once."
    return f"The question can be answered with {names}, so I call it first."


def _make_reasoning(text: str) -> Reasoning:
    return Reasoning(reasoning=split_words(text))


def _make_call(name: str, arguments: Mapping[str, object], index: int) -> ToolCall:
    words = split_words(orjson.dumps(arguments).decode())
    return ToolCall(tool_call=name, id=f"call_{token_hex(4)}", index=index, arguments=words)


def _choose_tools(request: ModelRequest) -> Iterator[tuple[str, Mapping[str, object]]]:
    if call := choose_named_call(request):
        yield call
        return
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
    if call := choose_python_call(request) or choose_web_call(request):
        yield call
    if call := choose_people_call(request) or choose_memory_call(request):
        yield call


def _find_city(text: str) -> str:
    if match := _CITY.search(text) or _CITY_BEFORE_WEATHER.search(text):
        return match[1]
    return _DEFAULT_CITY


def build_load_reply(request: ModelRequest) -> Reply | None:
    """Build a load model's reply; None for other models. Plain `bench` is `bench-64x20ms`."""
    if request.model == "idle":
        return Reply(steps=(Stall(),))
    if not (bench := _BENCH.fullmatch(request.model)):
        return None
    repeat = Repeat(repeat=_TEXT, times=min(int(bench["deltas"] or 64), TIMES_MAX))
    return Reply(steps=(repeat,), pace_ms=float(bench["pace_ms"] or 20))
