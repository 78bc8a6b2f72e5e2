"""Calls the agent's model within a call's reserved budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager

import grpc

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import common_pb2, llm_pb2, tools_pb2
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.usage import Rates, add_cost
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import ToolContext

TIMEOUT_S = 300.0
"""Time of all questions together, in a call without a time limit."""

PROMPT_BYTES_PER_TOKEN = 3
"""Accurate for Chinese and low for English, so a prompt is never much underestimated."""

SHORT_TOKENS_MAX = 2000
"""Room for a few lines; some models reason first even if instructed not to."""

OUTPUT_TOKENS_MAX = 1_000_000
"""More than any model writes."""

ANSWER_TOKENS_MIN = 64
"""With fewer tokens left, a question is not worth its prompt."""


class ModelFailed(ToolFailed):
    """The model failed before its answer ended, or the budget or the time is spent."""


class ModelClient:
    """Serves one call, which reports `usage` before its result, even if it fails."""

    def __init__(self, context: ToolContext) -> None:
        if not context.request.HasField("model"):
            raise ToolFailed("this tool asks a model, and the call came without one")
        self.usage = common_pb2.Usage()
        self.is_cut = False
        self._llm = context.llm
        self._model = context.request.model
        self._budget = context.request.budget
        self._rates = Rates(self._budget.input_usd_per_mtok, self._budget.output_usd_per_mtok)
        self._due_s = asyncio.get_running_loop().time() + (context.timeout_s or TIMEOUT_S)

    @property
    def calls_left(self) -> int:
        return max(self._budget.model_calls - self.usage.model_calls, 0)

    @property
    def left_s(self) -> float:
        """Seconds left for the call; negative once its time is over."""
        return self._due_s - asyncio.get_running_loop().time()

    async def ask_briefly(self, system: str, text: str) -> str:
        """Ask for an answer without reasoning first. Raises ModelFailed."""
        async with aclosing(self.stream_answer(system, text, is_short=True)) as deltas:
            return "".join([delta async for delta in deltas])

    def stream_answer(self, system: str, text: str, *, is_short: bool = False) -> AsyncGenerator[str]:
        """Stream an answer. Raises ModelFailed, even after the first delta."""
        messages = [make_message("system", system), make_message("user", text)]
        return self._stream(self._make_request(messages, is_short=is_short))

    async def answer_messages(
        self, messages: Sequence[llm_pb2.Message], max_tokens: int, temperature: float | None
    ) -> str:
        """Ask for the answer to a text conversation, with the provider's default reasoning. Raises ModelFailed."""
        request = self._make_request(messages, is_short=False, tokens_max=max_tokens)
        if temperature is not None:
            request.temperature = temperature
        async with aclosing(self._stream(request)) as deltas:
            return "".join([delta async for delta in deltas])

    async def _stream(self, request: llm_pb2.ChatRequest) -> AsyncGenerator[str]:
        seen = common_pb2.Usage(model_calls=1)
        reason, output_chars = "", 0
        self.usage.model_calls += 1
        try:
            if self.left_s <= 0:
                raise ModelFailed("the time for this call is over")
            with _translate_errors():
                call = self._llm.StreamChat(request, timeout=self.left_s, metadata=forward_metadata())
                async with reading(call) as deltas:
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
            if not (seen.input_tokens or seen.output_tokens):
                tokens, output_tokens = _estimate_tokens(request.messages), output_chars // PROMPT_BYTES_PER_TOKEN
                seen = common_pb2.Usage(input_tokens=tokens, output_tokens=output_tokens, estimated=True)
                if self._budget.HasField("input_usd_per_mtok"):
                    seen.cost_usd = self._rates.count_cost(tokens, output_tokens)
            add_cost(self.usage, seen)
        self.is_cut = reason == "length"
        if reason == "content_filter":
            raise ModelFailed("the model's provider refused to answer")
        if not reason:
            raise ModelFailed("the model's answer was cut")

    def make_usage(self) -> tools_pb2.ToolDelta:
        return tools_pb2.ToolDelta(usage=self.usage)

    def _make_request(
        self, messages: Sequence[llm_pb2.Message], *, is_short: bool, tokens_max: int = 0
    ) -> llm_pb2.ChatRequest:
        if not self.calls_left:
            raise ModelFailed("the budget for model calls is spent")
        prompt_tokens = _estimate_tokens(messages)
        wanted = (SHORT_TOKENS_MAX if is_short else 0, self._model.max_tokens, tokens_max)
        limits = [limit for limit in wanted if limit]
        if self._budget.HasField("tokens"):
            spent = self.usage.input_tokens + self.usage.output_tokens
            left = self._budget.tokens - spent - prompt_tokens
            if left < ANSWER_TOKENS_MIN:
                raise ModelFailed("the budget for tokens is spent")
            limits.append(left)
        if self._budget.HasField("cost_usd"):
            left_usd = self._budget.cost_usd - self.usage.cost_usd
            affordable = self._rates.count_affordable_output(left_usd, prompt_tokens)
            if affordable < ANSWER_TOKENS_MIN:
                raise ModelFailed("the budget for money is spent")
            limits.append(int(min(affordable, OUTPUT_TOKENS_MAX)))
        return llm_pb2.ChatRequest(
            provider_key=self._model.provider_key,
            model=self._model.model,
            messages=messages,
            max_tokens=min(limits) if limits else None,
            reasoning=llm_pb2.Reasoning(enabled=False) if is_short else None,
            stage="tool",
        )


def make_message(role: str, text: str) -> llm_pb2.Message:
    return llm_pb2.Message(role=role, content=[llm_pb2.ContentPart(text=text)])


def _estimate_tokens(messages: Iterable[llm_pb2.Message]) -> int:
    text = "".join(part.text for message in messages for part in message.content)
    return len(text.encode()) // PROMPT_BYTES_PER_TOKEN + 1


@contextmanager
def _translate_errors() -> Generator[None]:
    try:
        yield
    except HeadraceError as error:
        raise ModelFailed(f"the model failed: {error.message} ({error.reason})") from error
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        raise ModelFailed("the model did not answer within the time of this call") from error
