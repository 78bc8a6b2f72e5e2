"""The pairing that every provider requires: each call is followed directly by its result; each result has a call."""

from collections.abc import Iterable
from typing import Any


def assert_paired(messages: Iterable[dict[str, Any]]) -> None:
    """Assert it for messages in OpenAI's form."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, f"a result without a call: {message['tool_call_id']}"
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, f"calls without results: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    assert not waiting, f"calls without results: {waiting}"
