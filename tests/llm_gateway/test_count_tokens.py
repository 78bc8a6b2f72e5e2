"""CountTokens over a real channel."""

import asyncio
import math
from typing import Any

import pytest

from headrace.errors import InvalidRequest
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2
from services.llm_gateway.providers.provider_file import Model
from services.llm_gateway.service import TokenScale, choose_scale
from services.runtime.tokens.count import count_request
from tests.support.llm_gateway.gateway import Asking, text_message

MODELS = [{"name": "gpt-4"}, {"name": "gpt-4o"}, {"name": "qwen3-max"}]
TOOL = llm_pb2.ToolSchema(name="bash", description="Run it.", parameters='{"type":"object"}')


def request(*texts: str, model: str = "gpt-4o", **fields: Any) -> llm_pb2.CountTokensRequest:
    messages = [text_message("user", text) for text in texts]
    return llm_pb2.CountTokensRequest(provider_key="sim", model=model, messages=messages, **fields)


async def test_openai_models_are_counted_exactly_by_their_own_encoding(asking: Asking) -> None:
    text = "敏捷的棕色狐狸 jumps over 12345 lazy dogs."
    async with asking(models=MODELS) as gateway:
        newer = await gateway.llm.CountTokens(request(text, tools=[TOOL]))
        older = await gateway.llm.CountTokens(request(text, tools=[TOOL], model="gpt-4-0613"))
    messages = [text_message("user", text)]
    assert (newer.tokens, newer.estimated) == (count_request(messages, [TOOL], "o200k_base"), False)
    assert (older.tokens, older.estimated) == (count_request(messages, [TOOL], "cl100k_base"), False)
    assert newer.tokens < older.tokens


async def test_other_models_are_estimated_from_above(asking: Asking) -> None:
    async with asking(models=MODELS) as gateway:
        counted = await gateway.llm.CountTokens(request("Hello, world", model="qwen3-max"))
    assert counted == llm_pb2.CountTokensResponse(tokens=math.ceil((2 + 4 + 1 + 3) * 1.15), estimated=True)


async def test_an_empty_request_counts_two_tokens(asking: Asking) -> None:
    async with asking(models=MODELS) as gateway:
        assert (await gateway.llm.CountTokens(request())).tokens == 2


async def test_an_unknown_model_is_refused(asking: Asking) -> None:
    async with asking(models=MODELS) as gateway:
        with pytest.raises(InvalidRequest, match="model"), rpc_errors():
            await gateway.llm.CountTokens(request("x", model="unheard-of"))


async def test_the_gateway_keeps_answering_while_counting_a_large_request(asking: Asking) -> None:
    async with asking(models=MODELS) as gateway:
        await gateway.llm.CountTokens(request("x"))
        large = asyncio.ensure_future(gateway.llm.CountTokens(request("word " * 600_000)))
        answered_before = 0
        while not large.done():
            await gateway.llm.CountTokens(request("x"))
            answered_before += 1
        assert (await large).tokens > 600_000
        assert answered_before > 3


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Model(name="gpt-4o"), TokenScale("o200k_base", True)),
        (Model(name="gpt-4", encoding="o200k_base"), TokenScale("o200k_base", True)),
        (Model(name="house-model"), TokenScale("o200k_base", False)),
        (Model(name="house-model", encoding="cl100k_base"), TokenScale("cl100k_base", True)),
        (Model(name="house-model", encoding="unheard-of"), TokenScale("o200k_base", False)),
        (Model(name="qwen3-max", encoding="cl100k_base"), TokenScale("cl100k_base", True)),
        (Model(name="deepseek-ai/DeepSeek-V3.2"), TokenScale("o200k_base", False)),
    ],
)
def test_the_scale_follows_the_model_and_the_file(model: Model, expected: TokenScale) -> None:
    assert choose_scale(model) == expected
