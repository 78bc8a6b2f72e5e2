"""A server's questions to the agent's model, within what mcp.json grants and what is left of the run's budget."""

from __future__ import annotations

from collections.abc import Sequence

import mcp_types as types

from headrace.v1 import llm_pb2, tools_pb2
from services.tools.mcp_client.settings import Sampling
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.model_client import ModelClient, ModelFailed, make_message

MESSAGES_MAX, CHARS_MAX = 200, 400_000


class Sampler:
    """Serves one attempt of a call, whose budget it spends."""

    def __init__(self, server: str, granted: Sampling | None, context: ToolContext) -> None:
        self._server = server
        self._granted = granted
        self._context = context
        self._client = ModelClient(context) if granted is not None else None
        self._asked = 0

    async def answer(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        """Ask the model; an error goes to the server."""
        if self._client is None or self._granted is None:
            return _refuse("sampling is not granted")
        if self._asked >= self._granted.calls:
            return _refuse(f"a call may ask the model {self._granted.calls} times")
        messages = _make_messages(params)
        if isinstance(messages, types.ErrorData):
            return messages
        self._asked += 1
        tokens_max = min(max(params.max_tokens, 1), self._granted.max_tokens)
        try:
            text = await self._client.answer_messages(messages, tokens_max, params.temperature)
        except ModelFailed as failure:
            return types.ErrorData(code=types.INTERNAL_ERROR, message=str(failure))
        return self._make_result(text, params.stop_sequences or ())

    def _make_result(self, text: str, stops: Sequence[str]) -> types.CreateMessageResult:
        assert self._client is not None
        reason = "maxTokens" if self._client.is_cut else "endTurn"
        if found := [text.index(stop) for stop in stops if stop and stop in text]:
            text, reason = text[: min(found)], "stopSequence"
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(text=text),
            model=self._context.request.model.model,
            stop_reason=reason,
        )

    def report(self) -> tuple[tools_pb2.ToolDelta, ...]:
        """Return what has been spent so far, and the line of the run's log about the last question."""
        if self._client is None or not self._asked:
            return ()
        usage = self._client.usage
        spent = f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
        text = f"MCP server {self._server!r} has asked the model, {self._asked} times in this call ({spent})"
        return self._client.make_usage(), tools_pb2.ToolDelta(sampling=tools_pb2.ToolSampling(message=text))


def _make_messages(params: types.CreateMessageRequestParams) -> list[llm_pb2.Message] | types.ErrorData:
    if params.tools:
        return _refuse("tools: are not sampled with")
    if len(params.messages) > MESSAGES_MAX:
        return _refuse(f"messages: at most {MESSAGES_MAX}")
    messages = [make_message("system", params.system_prompt)] if params.system_prompt else []
    for message in params.messages:
        blocks = message.content_as_list
        texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
        if len(texts) < len(blocks):
            return _refuse("messages: text alone is sampled")
        messages.append(make_message(message.role, "\n".join(texts)))
    if sum(len(part.text) for message in messages for part in message.content) > CHARS_MAX:
        return _refuse(f"messages: at most {CHARS_MAX:,} characters")
    return messages


def _refuse(message: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_PARAMS, message=message)
