"""Describes tool results in words: specially for tools of the suite, by their content for others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from typing import Any

import orjson

from services.simulator.model_request import ToolResult

HIT = re.compile(r"^\[\d+\] (.+)\n(http\S+)\n(.+)$", re.MULTILINE)
"""A result of web_search: title, address, excerpt."""

PAGE = re.compile(r"# ([^\n]+)\nSource: (\S+)\n\n(?:# [^\n]+\n+)?(.*)", re.DOTALL)
"""A result of fetch_web: title, address and text."""

FIGURES = re.compile(r"There are (\d+) reports about ([^,\n]+), the first of them from (\d{4})\.")
"""The first sentence of an invented page."""

HITS_MAX = 3
RESULT_CHARS_MAX = 2000
"""Characters of a result that the answer repeats."""


def describe_results(results: Sequence[ToolResult]) -> str:
    texts = [_describe_result(result.name, result.content) for result in results]
    if comparison := _compare_figures("\n".join(texts)):
        texts.append(comparison)
    return "\n\n".join(texts)


def _describe_result(name: str, content: str) -> str:
    describe = DESCRIPTIONS.get(name)
    if describe and (described := describe(content)):
        return described
    data = _read_object(content)
    text = ", ".join(starmap("{} {}".format, data.items())) if data else content
    return f"{name} says: {text[:RESULT_CHARS_MAX]}"


def _describe_weather(content: str) -> str | None:
    facts = _read_object(content)
    if not {"city", "date", "condition", "temperatureC", "humidityPercent", "windKmh"} <= facts.keys():
        return None
    return (
        "The weather in {city} on {date}: {condition}, {temperatureC} °C, humidity {humidityPercent} %, "
        "wind {windKmh} km/h."
    ).format_map(facts)


def _describe_time(content: str) -> str | None:
    facts = _read_object(content)
    if not {"city", "date", "time", "weekday"} <= facts.keys():
        return None
    return "In {city} it is {time} on {weekday}, {date}.".format_map(facts)


def _describe_hits(content: str) -> str | None:
    hits = HIT.findall(content)[:HITS_MAX]
    return "\n".join(f"- [{title}]({url}): {excerpt}" for title, url, excerpt in hits)


def _describe_page(content: str) -> str | None:
    page = PAGE.fullmatch(content)
    return page and f"**{page[1]}**\n\n{page[3].strip()[:RESULT_CHARS_MAX]}\n\nSource: {page[2]}"


def _describe_sub_agent(content: str) -> str | None:
    return str(_read_object(content.partition("\n")[0]).get("result") or "")


DESCRIPTIONS: Mapping[str, Callable[[str], str | None]] = {
    "mock_city_weather": _describe_weather,
    "city_datetime": _describe_time,
    "web_search": _describe_hits,
    "fetch_web": _describe_page,
    "call_subagent": _describe_sub_agent,
    "deep_search": str.strip,
    "remember": lambda content: "I have noted it." if '"ok":true' in content else None,
    "report": lambda content: f"The report is made: it {content}.",
    "python": lambda content: f"The code printed:\n\n```\n{content[:RESULT_CHARS_MAX].rstrip()}\n```",
    "_bash_": lambda content: f"The command printed:\n\n```\n{content[:RESULT_CHARS_MAX].rstrip()}\n```",
}
"""By tool, a function that describes its result; None if the result has another form."""


def _compare_figures(text: str) -> str:
    """Compare two or more results about different subjects; empty for fewer."""
    figures = {subject: (int(count), int(year)) for count, subject, year in FIGURES.findall(text)}
    if len(figures) < 2:
        return ""
    most = max(figures, key=lambda subject: figures[subject][0])
    oldest = min(figures, key=lambda subject: figures[subject][1])
    return (
        f"Compared: most reports are about {most} ({figures[most][0]}), and the oldest about {oldest} "
        f"({figures[oldest][1]}). Nowhere do the results contradict each other."
    )


def _read_object(content: str) -> dict[str, Any]:
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}
