"""POST /v1/embeddings: forwards the inputs to a provider's embedding model."""

from __future__ import annotations

import asyncio
import base64
import re
import struct
from typing import Annotated, Any, Literal

import grpc
import msgspec
import orjson
from aiohttp import web
from msgspec import Meta

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2_grpc, llm_pb2
from services.facade.openai_api.body import parse_body
from services.facade.peer_calls import call_peer
from services.facade.requests.body import read_body

TIMEOUT_S = 120.0

INLINE_BYTES_MAX = 16 * 1024
"""Answers up to this size (4,096 numbers) are encoded on the event loop, in about 2 ms."""

_INPUT_FIELD = re.compile(r"inputs\b")


Token = Annotated[int, Meta(ge=0, lt=2**31)]


class _Body(msgspec.Struct):
    model: str
    input: str | list[str | Token | list[Token]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, lt=2**31)] | None = None


class Embeddings:
    def __init__(self, orchestrator: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)

    async def create_embeddings(self, request: web.Request) -> web.StreamResponse:
        """Answer with one vector per input; InvalidRequest names the field of this request."""
        answer = await self._embed(parse_body(await read_body(request), _Body))
        return web.Response(body=answer, content_type="application/json", charset="utf-8")

    async def _embed(self, given: _Body) -> bytes:
        inputs = _read_inputs(given.input)
        request = llm_pb2.EmbedRequest(model=given.model, inputs=inputs, dimensions=given.dimensions)
        try:
            reply = await call_peer(self._agents.Embed, request, TIMEOUT_S)
        except InvalidRequest as error:
            if "rule" not in error.metadata:
                raise
            field = _INPUT_FIELD.sub("input", error.metadata.get("field", ""))
            raise InvalidRequest.of(field, error.metadata["rule"]) from error
        if reply.ByteSize() > INLINE_BYTES_MAX:
            return await asyncio.to_thread(_encode_answer, reply, given.encoding_format)
        return _encode_answer(reply, given.encoding_format)


def _read_inputs(given: str | list[Any]) -> list[llm_pb2.EmbeddingInput]:
    if isinstance(given, str) or (given and all(isinstance(one, int) for one in given)):
        given = [given]
    if any(isinstance(one, int) for one in given):
        raise InvalidRequest.of("input", "must be a text, the tokens of one, or a list of either")
    return [
        llm_pb2.EmbeddingInput(text=one)
        if isinstance(one, str)
        else llm_pb2.EmbeddingInput(tokens=llm_pb2.TokenIds(ids=one))
        for one in given
    ]


def _encode_answer(reply: llm_pb2.EmbedResponse, encoding: str | None) -> bytes:
    answer = {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": at,
                "embedding": base64.b64encode(one.vector).decode()
                if encoding == "base64"
                else _write_decimals(one.vector),
            }
            for at, one in enumerate(reply.embeddings)
        ],
        "model": reply.model,
        "usage": {"prompt_tokens": reply.usage.input_tokens, "total_tokens": reply.usage.input_tokens},
    }
    return orjson.dumps(answer)


def _write_decimals(vector: bytes) -> list[float]:
    """Return the numbers with nine significant digits, which represent a 32-bit float exactly."""
    return [float(f"{number:.9g}") for (number,) in struct.iter_unpack("<f", vector)]
