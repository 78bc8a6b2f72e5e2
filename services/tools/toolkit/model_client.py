"""A tool's own questions to a model: the agent's model, within what the run has reserved for this call.

A model that fails is something the calling model can act on, so it is a ModelFailed, which is a ToolFailed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager

import grpc

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import common_pb2, llm_pb2, tools_pb2
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.usage import add_cost
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import Call

TIMEOUT_S = 300.0
"""For all questions of a call that brings no limit of its own."""

PROMPT_BYTES_PER_TOKEN = 3
"""Too few for English and right for Chinese: a prompt is never thought smaller than it is, by much."""

SHORT_TOKENS_MAX = 2000
"""For lists and verdicts of a few lines; some models think before them even when told not to."""

ANSWER_TOKENS_MIN = 64
"""With less left than that a question is not worth its prompt."""


class ModelFailed(ToolFailed):
    """No answer, or not all of it: the model failed, or the budget or the time is spent."""


class Asker:
    """The model of one call. `usage` is what it has cost so far; report it before the result, whatever happens."""

    def __init__(self, call: Call) -> None:
        if not call.request.HasField("model"):
            raise ToolFailed("this tool asks a model, and the call came without one")
        self.usage = common_pb2.Usage()
        self.is_cut = False
        """Whether the last answer ended at its greatest number of tokens."""
        self._llm = call.llm
        self._model = call.request.model
        self._budget = call.request.budget
        self._due_s = asyncio.get_running_loop().time() + (call.timeout_s or TIMEOUT_S)

    @property
    def calls_left(self) -> int:
        return max(self._budget.model_calls - self.usage.model_calls, 0)

    @property
    def left_s(self) -> float:
        """Time of the call that is left; negative when it is over."""
        return self._due_s - asyncio.get_running_loop().time()

    async def ask(self, system: str, text: str) -> str:
        """The whole of a short answer, given without thinking first. Raises ModelFailed."""
        async with aclosing(self.stream(system, text, is_short=True)) as deltas:
            return "".join([delta async for delta in deltas])

    async def stream(self, system: str, text: str, *, is_short: bool = False) -> AsyncGenerator[str]:
        """The answer's text as the model gives it. Raises ModelFailed, also after the first delta."""
        request, seen = self._request(system, text, is_short=is_short), common_pb2.Usage(model_calls=1)
        reason, output_chars = "", 0
        self.usage.model_calls += 1
        try:
            with _model_errors():
                async with reading(self._open(request)) as deltas:
                    async for delta in deltas:
                        match delta.WhichOneof("delta"):
                            case "content":
                                output_chars += len(delta.content)
                                yield delta.content
                            case "usage":
                                seen.CopyFrom(delta.usage)
                            case "finish":
                                reason = delta.finish.reason
                            case _:
                                pass
        finally:
            add_cost(self.usage, seen if seen.input_tokens or seen.output_tokens else _estimated(request, output_chars))
        self.is_cut = reason == "length"
        if reason == "content_filter":
            raise ModelFailed("the model's provider refused to answer")
        if reason not in ("stop", "length"):
            raise ModelFailed("the model's answer was cut")

    def delta(self) -> tools_pb2.ToolDelta:
        """What the questions have cost, for the caller."""
        return tools_pb2.ToolDelta(usage=self.usage)

    def _open(self, request: llm_pb2.ChatRequest) -> grpc.aio.UnaryStreamCall[llm_pb2.ChatRequest, llm_pb2.LlmDelta]:
        if self.left_s <= 0:
            raise ModelFailed("the time for this call is over")
        return self._llm.StreamChat(request, timeout=self.left_s, metadata=forward_metadata())

    def _request(self, system: str, text: str, *, is_short: bool) -> llm_pb2.ChatRequest:
        if not self.calls_left:
            raise ModelFailed("the budget for model calls is spent")
        limits = [limit for limit in (SHORT_TOKENS_MAX if is_short else 0, self._model.max_tokens) if limit]
        if self._budget.HasField("tokens"):
            spent = self.usage.input_tokens + self.usage.output_tokens
            left = self._budget.tokens - spent - _prompt_tokens(system + text)
            if left < ANSWER_TOKENS_MIN:
                raise ModelFailed("the budget for tokens is spent")
            limits.append(left)
        return llm_pb2.ChatRequest(
            provider_key=self._model.provider_key,
            model=self._model.model,
            messages=[_message("system", system), _message("user", text)],
            max_tokens=min(limits) if limits else None,
            reasoning=llm_pb2.Reasoning(enabled=False) if is_short else None,
            stage="tool",
        )


def _message(role: str, text: str) -> llm_pb2.Message:
    return llm_pb2.Message(role=role, content=[llm_pb2.ContentPart(text=text)])


def _prompt_tokens(text: str) -> int:
    return len(text.encode()) // PROMPT_BYTES_PER_TOKEN + 1


def _estimated(request: llm_pb2.ChatRequest, output_chars: int) -> common_pb2.Usage:
    """Stands in where an answer broke off before its usage came."""
    prompt = "".join(part.text for message in request.messages for part in message.content)
    return common_pb2.Usage(input_tokens=_prompt_tokens(prompt), output_tokens=output_chars // 3, estimated=True)


@contextmanager
def _model_errors() -> Generator[None]:
    try:
        yield
    except HeadraceError as error:
        raise ModelFailed(f"the model failed: {error.message} ({error.reason})") from error
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        raise ModelFailed("the model did not answer within the time of this call") from error
