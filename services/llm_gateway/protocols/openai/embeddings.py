"""Embeddings: builds the body of POST {baseUrl}/embeddings and reads the vectors of the answer.

https://platform.openai.com/docs/api-reference/embeddings (2026-05)
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.errors import BadFrame, InvalidRequest
from headrace.v1 import common_pb2, llm_pb2
from services.llm_gateway.protocols.common.reports import drop_impossible
from services.llm_gateway.providers.provider_file import Model, Provider

CHAT_PATH, PATH = "/chat/completions", "/embeddings"

FLOAT_BYTES = 4

ENCODING = "encoding_format"
"""Field that some servers refuse, or answer without vectors (https://github.com/mem0ai/mem0/issues/4057, 2026-02)."""


class _Vector(msgspec.Struct):
    embedding: str | list[float]
    index: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Vector]
    usage: _Usage | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


def find_path(provider: Provider) -> str:
    """Return the path of embeddings, derived from that of chat completions.

    Raises:
        InvalidRequest: The provider's protocol has none.
    """
    if provider.protocol != "openai":
        raise InvalidRequest.of("model", f"is of provider {provider.key!r}, whose protocol has no embeddings")
    path = provider.path or PATH
    return path.removesuffix(CHAT_PATH) + PATH if path.endswith(CHAT_PATH) else PATH


def build_body(request: llm_pb2.EmbedRequest, inputs: Iterable[llm_pb2.EmbeddingInput], model: Model) -> dict[str, Any]:
    """Return the body for some of the request's inputs."""
    texts = [given.text if given.HasField("text") else [*given.tokens.ids] for given in inputs]
    # base64 takes a third of the bytes of decimals, and OpenAI's own clients request it.
    body: dict[str, Any] = {"model": request.model, "input": texts, ENCODING: "base64"}
    if request.HasField("dimensions"):
        body["dimensions"] = request.dimensions
    return {name: value for name, value in (body | model.extra_body).items() if value is not None}


def read_answer(body: bytes, inputs: int) -> tuple[list[llm_pb2.Embedding], common_pb2.Usage]:
    """Return one vector for each of `inputs`, in their order, and the tokens counted by the provider.

    Call it in a thread for large answers.

    Raises:
        BadFrame: The answer does not fit.
    """
    try:
        answer = _ANSWER.decode(body)
        found = {at if one.index is None else one.index: _read_vector(one) for at, one in enumerate(answer.data)}
    except (msgspec.DecodeError, binascii.Error, OverflowError, ValueError) as error:
        raise BadFrame(f"the provider's answer has no embeddings that can be read: {type(error).__name__}") from None
    vectors = [found[at] for at in range(inputs) if at in found]
    if len(vectors) != inputs or len(found) != inputs or len({len(vector) for vector in vectors}) != 1:
        raise BadFrame(f"the provider answered {inputs} inputs with {len(answer.data)} embeddings, or of many lengths")
    if not vectors[0] or len(vectors[0]) % FLOAT_BYTES:
        raise BadFrame("the provider's embeddings are empty, or none of 32-bit floats")
    counts = answer.usage or _Usage()
    drop_impossible(counts)
    usage = common_pb2.Usage(input_tokens=counts.prompt_tokens or counts.total_tokens or 0, model_calls=1)
    return [llm_pb2.Embedding(vector=vector) for vector in vectors], usage


def _read_vector(given: _Vector) -> bytes:
    if isinstance(given.embedding, str):
        return base64.b64decode(given.embedding, validate=True)
    numbers = array("f", given.embedding)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
