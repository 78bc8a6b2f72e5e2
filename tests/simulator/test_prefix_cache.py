"""Prompts that begin as an earlier one are reported as cached, as OpenAI reports them."""

from typing import Any

import pytest

from services.simulator.request_log import PrefixCache


def ask(*texts: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}


LONG = "word " * 2000
"""2,500 tokens."""


@pytest.mark.parametrize(
    ("first", "then", "cached"),
    [
        (ask(LONG), ask(LONG, "more"), 2304),
        (ask(LONG), ask("other" + LONG), 0),
        (ask("short"), ask("short", "more"), 0),
        (ask(LONG, "a"), {"model": "m", "tools": [1], "messages": ask(LONG, "a")["messages"]}, 0),
        (ask(LONG), ask(LONG[:6000] + "!" + LONG), 1280),
    ],
)
def test_a_prefix_that_was_there_before_is_cached(first: dict[str, Any], then: dict[str, Any], cached: int) -> None:
    cache = PrefixCache()

    def measure(body: dict[str, Any]) -> int:
        return cache.measure(body, sum(len(message["content"]) for message in body["messages"]) // 4)

    assert measure(first) == 0
    assert measure(then) == cached
