"""A real gateway in front of a real simulator, as its callers see it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.simulator.server import Simulator

TEST_TIMEOUT_S = 600.0

SPARE: dict[str, Any] = {"key": "spare", "models": [{"name": "sim-2"}]}


@dataclass(frozen=True, slots=True)
class ChatResult:
    """The deltas and the error of a whole stream."""

    deltas: list[llm_pb2.LlmDelta]
    error: HeadraceError | None

    @property
    def failure(self) -> HeadraceError:
        """The error, which there must be."""
        assert self.error is not None
        return self.error

    @property
    def reason(self) -> str:
        """That of the error; empty where all went well."""
        return self.error.reason if self.error is not None else ""

    @property
    def kinds(self) -> list[str]:
        return [delta.WhichOneof("delta") or "" for delta in self.deltas]

    @property
    def content(self) -> list[str]:
        return [delta.content for delta in self.deltas if delta.WhichOneof("delta") == "content"]

    @property
    def calls(self) -> list[llm_pb2.ToolCallDelta]:
        return [delta.tool_call for delta in self.deltas if delta.WhichOneof("delta") == "tool_call"]

    @property
    def usage(self) -> Any:
        return next(delta.usage for delta in self.deltas if delta.WhichOneof("delta") == "usage")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway, its stub, and the simulator behind it."""

    llm: llm_pb2_grpc.LlmServiceAsyncStub
    sim: Simulator
    provider_file: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    heads: list[bytes] = field(default_factory=list[bytes])
    """Heads of the requests that received scripted answers."""

    def request(self, *messages: llm_pb2.Message, **fields: Any) -> llm_pb2.ChatRequest:
        """A request to the simulator; without messages, with one of a user."""
        given: dict[str, Any] = {"provider_key": "sim", "model": "sim-1"} | fields
        return llm_pb2.ChatRequest(messages=messages or [text_message("user", "hello")], **given)

    async def chat(self, *messages: llm_pb2.Message, **fields: Any) -> ChatResult:
        """The whole stream, with the error that ended it."""
        deltas: list[llm_pb2.LlmDelta] = []
        try:
            async with reading(self.llm.StreamChat(self.request(*messages, **fields), timeout=150)) as replies:
                async for delta in replies:
                    deltas.append(delta)
        except HeadraceError as error:
            return ChatResult(deltas, error)
        return ChatResult(deltas, None)


Asking: TypeAlias = "Callable[..., AbstractAsyncContextManager[Gateway]]"


def text_message(role: str, text: str, **fields: Any) -> llm_pb2.Message:
    return llm_pb2.Message(role=role, content=[llm_pb2.ContentPart(text=text)], **fields)


def provider_entry(base_url: str, **fields: Any) -> dict[str, Any]:
    model = {"name": "sim-1", "capabilities": ["tools", "reasoning", "vision"], "contextWindow": 1000}
    models = [model, {"name": "idle"}, {"name": "bench"}]
    # Most tests need one attempt, and bodies without cache marks; others override this.
    calm: dict[str, Any] = {"retry": {"maxAttempts": 1}, "promptCache": False}
    return {"key": "sim", "protocol": "openai", "baseUrl": base_url, "models": models} | calm | fields
