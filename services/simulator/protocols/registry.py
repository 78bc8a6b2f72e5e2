"""The simulator's protocols, by path; `{name}` in a path matches any text without a slash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from services.simulator.model_request import ModelRequest
from services.simulator.player import Action
from services.simulator.protocols import anthropic, bedrock, gemini, openai, openai_responses
from services.simulator.script import Reply


class Streamed(Protocol):
    """Returns the actions that stream a reply at a pace."""

    def __call__(self, request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]: ...


@dataclass(frozen=True, slots=True)
class WireProtocol:
    parse_request: Callable[[Any, Mapping[str, str], Mapping[str, str]], ModelRequest]
    """Takes the decoded body, lower-case headers, and the names in the path; raises RequestRefused."""

    stream_reply: Streamed
    build_whole_reply: Callable[[ModelRequest, Reply], Iterator[Action]]
    build_error: Callable[[str, int], dict[str, Any]]
    stream_type: str = "text/event-stream"


CHAT_PATH = "/v1/chat/completions"

_BEDROCK = WireProtocol(
    bedrock.parse_request,
    bedrock.stream_reply,
    bedrock.build_whole_reply,
    bedrock.build_error,
    bedrock.STREAM_TYPE,
)

PROTOCOLS: Mapping[str, WireProtocol] = {
    CHAT_PATH: WireProtocol(
        openai.parse_request,
        openai.stream_reply,
        openai.build_whole_reply,
        openai.build_error,
    ),
    "/v1/responses": WireProtocol(
        openai_responses.parse_request,
        openai_responses.stream_reply,
        openai_responses.build_whole_reply,
        openai.build_error,
    ),
    "/{version}/models/{model}:{method}": WireProtocol(
        gemini.parse_request,
        gemini.stream_reply,
        gemini.build_whole_reply,
        gemini.build_error,
    ),
    "/model/{model}/{method}": _BEDROCK,
    "/v1/model/{model}/{method}": _BEDROCK,
    "/v1/messages": WireProtocol(
        anthropic.parse_request,
        anthropic.stream_reply,
        anthropic.build_whole_reply,
        anthropic.build_error,
    ),
}
