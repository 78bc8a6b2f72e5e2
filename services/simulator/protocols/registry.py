"""The simulator's protocols, by path, in which `{name}` stands for any text without a slash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from services.simulator.protocols.anthropic import reply as anthropic_reply
from services.simulator.protocols.anthropic import request as anthropic_request
from services.simulator.protocols.bedrock import reply as bedrock_reply
from services.simulator.protocols.bedrock import request as bedrock_request
from services.simulator.protocols.bedrock.event_stream import STREAM_TYPE
from services.simulator.protocols.gemini import reply as gemini_reply
from services.simulator.protocols.gemini import request as gemini_request
from services.simulator.protocols.openai import reply as openai_reply
from services.simulator.protocols.openai import request as openai_request
from services.simulator.protocols.openai_responses import reply as responses_reply
from services.simulator.protocols.openai_responses import request as responses_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from services.simulator.playback.player import Action
    from services.simulator.requests.model_request import ModelRequest
    from services.simulator.scripts.steps import Reply


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
    bedrock_request.parse_request,
    bedrock_reply.stream_reply,
    bedrock_reply.build_whole_reply,
    bedrock_reply.build_error,
    STREAM_TYPE,
)

PROTOCOLS: Mapping[str, WireProtocol] = {
    CHAT_PATH: WireProtocol(
        openai_request.parse_request,
        openai_reply.stream_reply,
        openai_reply.build_whole_reply,
        openai_reply.build_error,
    ),
    "/v1/responses": WireProtocol(
        responses_request.parse_request,
        responses_reply.stream_reply,
        responses_reply.build_whole_reply,
        responses_reply.build_error,
    ),
    "/{version}/models/{model}:{method}": WireProtocol(
        gemini_request.parse_request,
        gemini_reply.stream_reply,
        gemini_reply.build_whole_reply,
        gemini_reply.build_error,
    ),
    "/model/{model}/{method}": _BEDROCK,
    "/v1/model/{model}/{method}": _BEDROCK,
    "/v1/messages": WireProtocol(
        anthropic_request.parse_request,
        anthropic_reply.stream_reply,
        anthropic_reply.build_whole_reply,
        anthropic_reply.build_error,
    ),
}
