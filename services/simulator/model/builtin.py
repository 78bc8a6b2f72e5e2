"""What the simulator answers without a script: it reasons, calls the fitting tool, answers from the result."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

import orjson

from services.simulator.model.people import people_wish
from services.simulator.model.planner import arguments, of_task, plan_call, plan_text
from services.simulator.model.research import web_wish, written
from services.simulator.model.side_questions import beside
from services.simulator.model.sub_agents import delegated
from services.simulator.scripts.steps import Content, Reasoning, Reply, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from services.simulator.requests.model_request import Ask, ToolAnswer

_WORDS = re.compile(r"[\u3040-\u9fff]|[^\s\u3040-\u9fff]+\s*|\s+")
_CITY = re.compile(r"\b(?:in|at|for|of)\s+([A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*)")
_CITY_BEFORE_WEATHER = re.compile(r"([\u4e00-\u9fff]{2,4}?)(?:市)?(?:今天|明天|现在)?的?(?:天气|时间|几点)")
_WEATHER = re.compile(r"\bweather\b|\bforecast\b|天气", re.IGNORECASE)
_TIME = re.compile(r"\bwhat time\b|\bthe time\b|\bdate\b|\bwhat day\b|几点|时间|日期", re.IGNORECASE)
_COMMAND = re.compile(r"`([^`]+)`")
_DEFAULT_CITY = "Shanghai"
_SUBJECT_CHARS_MAX = 120
_RESULT_CHARS_MAX = 2000
"""Of a result, that much is repeated in the answer."""


def built_in(ask: Ask) -> Reply:
    """The reply to any question."""
    if text := beside(ask) or written(ask) or plan_text(ask):
        return Reply(steps=(Content(content=words(text)),))
    if call := plan_call(ask):
        return Reply(steps=(_call(call[0], arguments(call[1]), 0),))
    ask = of_task(ask)
    if ask.results:
        return Reply(steps=(_thought("The tool has answered; I can put it into words."), _answer(ask.results)))
    if calls := tuple(_calls(ask)):
        names = " and ".join(call.tool_call for call in calls)
        return Reply(steps=(_thought(f"The question can be answered with {names}, so I call it first."), *calls))
    return Reply(
        steps=(
            _thought("No tool is needed here; a short answer will do."),
            Content(content=words(_echo(ask.text))),
        )
    )


def words(text: str) -> tuple[str, ...]:
    """`text` cut before each word (or character, where a script has no spaces); joined it is the same again."""
    return tuple(_WORDS.findall(text))


def _thought(text: str) -> Reasoning:
    return Reasoning(reasoning=words(text))


def _calls(ask: Ask) -> Iterator[ToolCall]:
    """The calls that the question asks for."""
    for index, (name, given) in enumerate(_wishes(ask)):
        offered = ask.tools[name]
        known = {key: value for key, value in given.items() if key in offered or not offered}
        yield _call(name, orjson.dumps(known).decode(), index)


def _call(name: str, arguments: str, index: int) -> ToolCall:
    return ToolCall(tool_call=name, id=f"call_{token_hex(4)}", index=index, arguments=words(arguments))


def _wishes(ask: Ask) -> Iterator[tuple[str, Mapping[str, object]]]:
    if calls := [*delegated(ask)]:
        yield from calls
        return
    command = _COMMAND.search(ask.text)
    if command and "_bash_" in ask.tools:
        yield "_bash_", {"command": command[1]}
    weather = next((name for name in ask.tools if "weather" in name.lower()), None)
    if weather and _WEATHER.search(ask.text):
        yield weather, {"city": _city(ask.text), "date": datetime.now(UTC).date().isoformat()}
    if "city_datetime" in ask.tools and _TIME.search(ask.text):
        yield "city_datetime", {"city": _city(ask.text)}
    if wish := web_wish(ask):
        yield wish
    if wish := people_wish(ask):
        yield wish


def _city(text: str) -> str:
    if found := _CITY.search(text) or _CITY_BEFORE_WEATHER.search(text):
        return found[1]
    return _DEFAULT_CITY


def _answer(results: tuple[ToolAnswer, ...]) -> Content:
    sentences = [f"{result.name} says: {_in_words(result.content)}" for result in results]
    return Content(content=words("\n\n".join(sentences)))


def _in_words(content: str) -> str:
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        data = None
    if isinstance(data, dict):
        content = ", ".join(f"{key} {value}" for key, value in data.items())
    return content[:_RESULT_CHARS_MAX]


def _echo(text: str) -> str:
    subject = " ".join(text.split())[:_SUBJECT_CHARS_MAX].rstrip("?!. ")
    return (
        f"You asked: “{subject}”. I am the simulated model, so I know little about it, "
        "but every word of this answer has come to you as its own delta."
    )
