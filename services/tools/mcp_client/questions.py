"""Servers' questions during a call, and their answers: from a person, the agent's model, or configured roots.

Only mcp.json grants any of them.
"""

from __future__ import annotations

import hashlib
import json
import re

import mcp_types as types
from mcp.client.session import ClientRequestContext
from pydantic import FileUrl

from headrace.v1 import common_pb2, llm_pb2, tools_pb2
from services.tools.mcp_client.session import SessionHandlers
from services.tools.mcp_client.settings import Root, Sampling, Server
from services.tools.toolkit.model_client import ModelClient, ModelFailed, make_message
from services.tools.toolkit.tool import ToolContext, check_schema

MESSAGE_CHARS_MAX, SCHEMA_CHARS_MAX, URL_CHARS_MAX = 4_000, 32_000, 2_000

_URL = re.compile(r"https://[^\s@]+|http://(127\.0\.0\.1|localhost|\[::1\])([:/?][^\s@]*)?")
"""Addresses to which people may be sent: encrypted or local, and not a script; without a name and password, which would
hide the host."""

NO_PERSON = types.ErrorData(code=types.INVALID_REQUEST, message="nobody can be asked in this call")

ELSEWHERE = types.ErrorData(code=types.INVALID_REQUEST, message="it must be asked within a call")

MESSAGES_MAX, CHARS_MAX = 200, 400_000


def make_need(server: str, asked: str, params: types.ElicitRequestParams) -> common_pb2.InputNeed | types.ErrorData:
    """Create the question to a person; `asked` distinguishes it from the call's other questions. An error is sent to
    the server."""
    message = params.message[:MESSAGE_CHARS_MAX]
    if isinstance(params, types.ElicitRequestURLParams):
        if len(params.url) > URL_CHARS_MAX or not _URL.fullmatch(params.url):
            return _refuse("url: an https address of at most 2,000 characters is expected")
        need = common_pb2.InputNeed(server=server, message=message, url=params.url)
    else:
        schema = json.dumps(params.requested_schema, ensure_ascii=False)
        try:
            check_schema(schema)
        except ValueError as error:
            return _refuse(f"requestedSchema: {str(error).splitlines()[0][:200]}")
        if len(schema) > SCHEMA_CHARS_MAX or params.requested_schema.get("type") != "object":
            return _refuse(f"requestedSchema: an object's of at most {SCHEMA_CHARS_MAX:,} characters is expected")
        need = common_pb2.InputNeed(server=server, message=message, schema=schema)
    # The same words have the same name, and others never do: an answer that is known is that to this question.
    digest = hashlib.sha256(need.SerializeToString(deterministic=True)).hexdigest()[:16]
    need.name = f"{asked}-{digest}"
    return need


def make_response(answer: tools_pb2.InputAnswer) -> types.ElicitResult:
    """Return the person's answer in the server's form."""
    if answer.action != "accept":
        return types.ElicitResult(action="decline" if answer.action == "decline" else "cancel")
    content = json.loads(answer.content) if answer.HasField("content") else None
    return types.ElicitResult(action="accept", content=content)


async def list_roots(granted: tuple[Root, ...]) -> types.ListRootsResult | types.ErrorData:
    """Return the roots in mcp.json; none is a path of this machine, unless the operator wrote one."""
    if not granted:
        return types.ErrorData(code=types.INVALID_REQUEST, message="there are no roots")
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl(root.uri), name=root.name or None) for root in granted])


def make_shared_handlers(granted: Server) -> SessionHandlers:
    """Create the handlers of a session shared by many calls: questions are declared, but refused, because they are
    answered only within a call."""

    async def refuse(context: ClientRequestContext, params: object) -> types.ErrorData:
        return ELSEWHERE

    return SessionHandlers(
        sampling=refuse if granted.sampling is not None else None,
        elicitation=refuse if granted.elicitation else None,
        roots=(lambda context: list_roots(granted.roots)) if granted.roots else None,
    )


class Sampler:
    """Serves one attempt of a call, and spends its budget."""

    def __init__(self, server: str, granted: Sampling | None, context: ToolContext) -> None:
        self._server = server
        self._granted = granted
        self._context = context
        self._client = ModelClient(context) if granted is not None else None
        self._asked = 0

    async def answer(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        """Ask the model; an error is sent to the server."""
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
        reason = "maxTokens" if self._client.is_cut else "endTurn"
        if found := [text.index(stop) for stop in params.stop_sequences or () if stop and stop in text]:
            text, reason = text[: min(found)], "stopSequence"
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(text=text),
            model=self._context.request.model.model,
            stop_reason=reason,
        )

    def report(self) -> tuple[tools_pb2.ToolDelta, ...]:
        """Return the usage so far, and the run log's line about the last question."""
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
