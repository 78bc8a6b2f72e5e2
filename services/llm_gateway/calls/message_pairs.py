"""Checks that calls and results come in pairs, as every provider demands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import UnpairedMessages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import llm_pb2


def check_pairs(messages: Iterable[llm_pb2.Message]) -> None:
    """Check that one result per call follows each assistant message directly.

    Raises:
        UnpairedMessages: Names the unpaired call or result.
    """
    open_calls: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id, None) is None:
                raise _make_unpaired_error(message.tool_call_id, "result {!r} does not follow its call")
            continue
        _refuse_open_calls(open_calls)
        for call in message.tool_calls:
            if call.id in open_calls:
                raise _make_unpaired_error(call.id, "call {!r} stands twice in one message")
            open_calls[call.id] = call.name
    _refuse_open_calls(open_calls)


def _refuse_open_calls(calls: dict[str, str]) -> None:
    for call_id in calls:
        raise _make_unpaired_error(call_id, "call {!r} has no result right after it")


def _make_unpaired_error(call_id: str, text: str) -> UnpairedMessages:
    return UnpairedMessages(f"messages: {text.format(call_id)}", toolCallId=call_id)
