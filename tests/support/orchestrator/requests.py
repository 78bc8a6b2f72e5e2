"""Requests to the model."""

from headrace.v1 import llm_pb2
from tests.support.orchestrator.suite import Suite


def assert_paired(request: llm_pb2.ChatRequest) -> None:
    """Check that every call is directly followed by its result, and every result has its call."""
    waiting: list[str] = []
    for message in request.messages:
        if message.role == "tool":
            assert waiting, "a result without a call"
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert not waiting, f"calls without results: {waiting}"
        waiting = [tool_call.id for tool_call in message.tool_calls]
    assert not waiting, f"calls without results: {waiting}"


def last_result(suite: Suite) -> str:
    """Return the latest tool result in the model's last request."""
    assert_paired(suite.llm.requests[-1])
    return (
        next(message for message in reversed(suite.llm.requests[-1].messages) if message.role == "tool").content[0].text
    )


def shown(suite: Suite, turn: int = -1) -> set[str]:
    """Return the names of a request's tools."""
    return {schema.name for schema in suite.llm.requests[turn].tools}


def reminder(suite: Suite, turn: int = -1) -> str:
    """Return the reminder after the last message of a request, or an empty text."""
    last = suite.llm.requests[turn].messages[-1].content[-1].text
    return last if last.startswith("<system_reminder>") else ""
