"""Embeddings: the provider's request, its response, and its failures."""

import base64
import json
import struct
from typing import Any

import pytest

from headrace.errors import (
    BadFrame,
    HeadraceError,
    InvalidRequest,
    NotFound,
    Overloaded,
    ProviderAuthentication,
    QuotaExceeded,
    RateLimited,
)
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2
from tests.support.llm_gateway.answering import http_answer
from tests.support.llm_gateway.gateway import Asking, Gateway
from tests.support.spans import recording

MODELS: list[dict[str, Any]] = [
    {"name": "sim-1"},
    {"name": "embed-1", "capabilities": ["embeddings"], "price": {"inputPerMTok": 2.0}},
]


def make_inputs(*texts: str) -> list[llm_pb2.EmbeddingInput]:
    return [llm_pb2.EmbeddingInput(text=text) for text in texts]


async def embed(gateway: Gateway, *inputs: llm_pb2.EmbeddingInput, **fields: Any) -> llm_pb2.EmbedResponse:
    given: dict[str, Any] = {"model": "embed-1", "inputs": inputs} | fields
    with rpc_errors():
        return await gateway.llm.Embed(llm_pb2.EmbedRequest(**given), timeout=60)


def unpack_vector(embedding: llm_pb2.Embedding) -> tuple[float, ...]:
    return struct.unpack(f"<{len(embedding.vector) // 4}f", embedding.vector)


def make_response(*vectors: Any, status: int = 200, **fields: Any) -> bytes:
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    body = json.dumps({"object": "list", "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}} | fields)
    return http_answer(status, body.encode()).replace(b"text/event-stream", b"application/json")


async def test_each_text_gets_a_vector_and_similar_texts_similar_ones(asking: Asking) -> None:
    async with asking(models=MODELS) as gateway:
        reply = await embed(gateway, *make_inputs("warm day in Paris", "a warm day in Paris", "cold tea"))
        assert gateway.sim.requests[-1].body == {
            "model": "embed-1",
            "input": ["warm day in Paris", "a warm day in Paris", "cold tea"],
            "encoding_format": "base64",
        }
    assert (reply.provider_key, reply.model) == ("sim", "embed-1")
    first, near, far = map(unpack_vector, reply.embeddings)
    assert len(first) == 256
    assert (
        sum(a * b for a, b in zip(first, near, strict=True)) > 0.8 > sum(a * b for a, b in zip(first, far, strict=True))
    )
    assert (reply.usage.input_tokens, reply.usage.model_calls) == (11, 1)
    assert reply.usage.cost_usd == pytest.approx(22e-6)


async def test_tokens_and_dimensions_are_sent_to_the_provider(asking: Asking) -> None:
    async with asking(models=[MODELS[1] | {"extraBody": {"user": "us", "encoding_format": None}}]) as gateway:
        tokens = llm_pb2.EmbeddingInput(tokens=llm_pb2.TokenIds(ids=[1, 2, 3]))
        reply = await embed(gateway, tokens, provider_key="sim", dimensions=8)
        assert gateway.sim.requests[-1].body == {
            "model": "embed-1",
            "input": [[1, 2, 3]],
            "dimensions": 8,
            "user": "us",
        }
    assert len(unpack_vector(reply.embeddings[0])) == 8


@pytest.mark.parametrize(
    ("path", "request_line"),
    [
        (None, b"POST /v1/embeddings HTTP/1.1"),
        ("/openai/deployments/{model}/chat/completions", b"POST /v1/openai/deployments/embed-1/embeddings HTTP/1.1"),
    ],
)
async def test_the_embeddings_path_is_derived_from_the_chat_completions_path(
    asking: Asking, path: str | None, request_line: bytes
) -> None:
    packed = base64.b64encode(struct.pack("<2f", 0.5, -1)).decode()
    async with asking(
        answers=[make_response(packed, [0.25, 1e-3])], models=MODELS, **({"path": path} if path else {})
    ) as gateway:
        reply = await embed(gateway, *make_inputs("a", "b"))
    assert gateway.heads[0].startswith(request_line)
    assert [unpack_vector(embedding) for embedding in reply.embeddings] == [(0.5, -1.0), pytest.approx((0.25, 1e-3))]
    assert reply.usage.input_tokens == 7


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": -1, "total_tokens": 10**30}])
async def test_vectors_are_returned_in_the_order_of_the_inputs(asking: Asking, usage: Any) -> None:
    turned = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    async with asking(answers=[make_response(data=turned, usage=usage)], models=MODELS) as gateway:
        reply = await embed(gateway, *make_inputs("a", "b"))
    assert [unpack_vector(embedding) for embedding in reply.embeddings] == [(1.0,), (2.0,)]
    assert reply.usage.estimated


@pytest.mark.parametrize(
    "broken",
    [
        make_response([1.0]),
        make_response([1.0], [1.0, 2.0]),
        make_response([], []),
        make_response("AAA=", "AAA="),
        make_response("not base64!", [1.0]),
        make_response([1.0], [2.0], data=[{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}]),
        make_response([1.0], [2.0], data="none"),
        http_answer(200, b'{"error":{"message":"no"}}'),
        http_answer(200, b"<html>"),
    ],
)
async def test_a_malformed_embeddings_response_is_an_error(asking: Asking, broken: bytes) -> None:
    async with asking(answers=[broken], models=MODELS) as gateway:
        with pytest.raises(BadFrame):
            await embed(gateway, *make_inputs("a", "b"))


REFUSED = {"error": {"message": "Request contains an invalid argument.", "code": 400}}


@pytest.mark.parametrize(
    "refusal",
    [
        make_response(data=[]),
        http_answer(200, b'{"object":"list","data":null}'),
        http_answer(400, json.dumps(REFUSED).encode()),
        http_answer(400, b'{"errorMessage":"An error occurred while reading the response body"}'),
    ],
)
async def test_a_provider_without_base64_is_asked_for_floats_from_then_on(asking: Asking, refusal: bytes) -> None:
    async with asking(answers=[refusal, make_response([1.0]), make_response([2.0])], models=MODELS) as gateway:
        vectors = [
            unpack_vector(reply.embeddings[0]) for reply in [await embed(gateway, *make_inputs("a")) for _ in range(2)]
        ]
        [provider] = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest())).providers
    assert vectors == [(1.0,), (2.0,)]
    assert [[*model.left_out] for model in provider.models] == [[], ["encoding_format"]]


async def test_refused_inputs_do_not_disable_base64_for_others(asking: Asking) -> None:
    refusal = http_answer(400, json.dumps(REFUSED).encode())
    async with asking(answers=[refusal, refusal], models=MODELS) as gateway:
        with pytest.raises(InvalidRequest):
            await embed(gateway, *make_inputs("a"))
        [provider] = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest())).providers
    assert [[*model.left_out] for model in provider.models] == [[], []]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (
            "<400> InternalError.Algo.InvalidParameter: batch size is invalid, it should not be larger than 2.",
            400,
        ),
        ("batch size 5 > maximum allowed batch size 2", 422),
        ("* BatchEmbedContentsRequest.requests: at most 2 requests can be in one batch", 400),
    ],
)
async def test_inputs_are_sent_in_batches_when_a_provider_limits_their_number(
    asking: Asking, message: str, status: int
) -> None:
    """https://github.com/MemMachine/MemMachine/issues/864 (2025-12), https://github.com/garrytan/gbrain/issues/1199
    (2026-05)."""
    refusal = http_answer(status, json.dumps({"error": {"message": message}}).encode())
    batches = [make_response([1.0], [2.0]), make_response([3.0], [4.0]), make_response([5.0])]
    async with asking(answers=[refusal, *batches, *batches], models=MODELS) as gateway:
        for requests in (4, 7):
            reply = await embed(gateway, *make_inputs("a", "b", "c", "d", "e"))
            assert [unpack_vector(embedding) for embedding in reply.embeddings] == [
                (1.0,),
                (2.0,),
                (3.0,),
                (4.0,),
                (5.0,),
            ]
            assert (reply.usage.input_tokens, reply.usage.model_calls, len(gateway.heads)) == (21, 3, requests)


async def test_a_refused_key_falls_back_to_the_next_and_a_failure_is_retried(asking: Asking) -> None:
    refused, failed, empty = http_answer(401, b"{}"), http_answer(503, b"{}"), make_response([1.0])
    keys = {"apiKeys": ["env:KEY_A", "env:KEY_B"], "retry": {"maxAttempts": 2}}
    async with asking(answers=[refused, failed, empty], models=MODELS, **keys) as gateway:
        gateway.env.update(KEY_A="first-key", KEY_B="second-key")
        await embed(gateway, *make_inputs("a"))
    heads = [head.lower() for head in gateway.heads]
    assert [b"first-key" in head for head in heads] == [True, False, False]
    assert [b"second-key" in head for head in heads] == [False, True, True]


async def test_another_provider_of_the_model_is_tried_but_never_a_fallback_model(asking: Asking) -> None:
    failing = {"models": MODELS, "fallback": ["spare/sim-2"]}
    same = {"models": [{"name": "sim-2", "capabilities": ["embeddings"]}, MODELS[1]]}
    async with asking(answers=[http_answer(503, b"{}")], spare=same, **failing) as gateway:
        with pytest.raises(Overloaded):
            await embed(gateway, *make_inputs("a"), provider_key="sim")
        assert (await embed(gateway, *make_inputs("a"))).provider_key == "spare"
        (request,) = gateway.sim.requests
    assert request.body["model"] == "embed-1"


async def test_a_provider_without_its_key_is_skipped(asking: Asking) -> None:
    keyless = {"apiKeys": ["env:NOT_SET"]}
    async with asking(models=MODELS, spare={"models": MODELS}, **keyless) as gateway:
        assert (await embed(gateway, *make_inputs("a"))).provider_key == "spare"
        with pytest.raises(ProviderAuthentication):
            await embed(gateway, *make_inputs("a"), provider_key="sim")
    async with asking(answers=[http_answer(503, b"{}")], models=MODELS, spare={"models": MODELS} | keyless) as gateway:
        with pytest.raises(Overloaded):
            await embed(gateway, *make_inputs("a"))


@pytest.mark.parametrize(
    ("fields", "error", "place"),
    [
        ({"model": "sim-1"}, NotFound, ""),
        ({"model": "embed-2"}, NotFound, ""),
        ({"provider_key": "other"}, NotFound, ""),
        ({"dimensions": 0}, InvalidRequest, "dimensions"),
        ({"inputs": make_inputs("a", "")}, InvalidRequest, "inputs[1]"),
        ({"inputs": []}, InvalidRequest, "inputs"),
        ({"inputs": [llm_pb2.EmbeddingInput(tokens=llm_pb2.TokenIds())]}, InvalidRequest, "inputs[0]"),
        ({"inputs": make_inputs("a") * 2049}, InvalidRequest, "inputs"),
        ({"dimensions": 5000}, InvalidRequest, ""),
    ],
)
async def test_invalid_embedding_requests_are_refused(
    asking: Asking, fields: dict[str, Any], error: type[HeadraceError], place: str
) -> None:
    async with asking(models=MODELS) as gateway:
        with pytest.raises(error) as caught:
            await embed(gateway, **({"inputs": make_inputs("a")} | fields))
    assert caught.value.metadata.get("field", "") == place


async def test_a_provider_of_another_protocol_has_no_embeddings(asking: Asking) -> None:
    async with asking(models=MODELS, protocol="anthropic") as gateway:
        with pytest.raises(InvalidRequest, match="has no embeddings"):
            await embed(gateway, *make_inputs("a"))


async def test_a_rate_limit_is_reported_with_its_wait(asking: Asking) -> None:
    limited = http_answer(429, b"{}", retry_after="30")
    async with asking(answers=[limited], models=MODELS) as gateway:
        with pytest.raises(RateLimited) as caught:
            await embed(gateway, *make_inputs("a"))
    assert caught.value.retry_after_s == 30


async def test_a_call_waits_for_the_accounts_quota(asking: Asking) -> None:
    async with asking(models=MODELS, quota={"requestsPerMinute": 1}) as gateway:
        await embed(gateway, *make_inputs("a"))
        with pytest.raises(QuotaExceeded), rpc_errors():
            await gateway.llm.Embed(llm_pb2.EmbedRequest(model="embed-1", inputs=make_inputs("b")), timeout=1)


async def test_a_responses_tokens_count_against_the_accounts_minute(asking: Asking) -> None:
    async with asking(models=MODELS, quota={"tokensPerMinute": 12}) as gateway:
        reply = await embed(gateway, *make_inputs("warm day in Paris", "a warm day in Paris", "cold tea"))
        (provider,) = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest(), timeout=60)).providers[:1]
        assert provider.minute_tokens == reply.usage.input_tokens == 11
        with pytest.raises(QuotaExceeded), rpc_errors():
            await gateway.llm.Embed(llm_pb2.EmbedRequest(model="embed-1", inputs=make_inputs("b" * 50)), timeout=1)


async def test_an_attempts_span_has_its_outcome_and_token_usage(asking: Asking) -> None:
    with recording() as recorded:
        async with asking(models=MODELS) as gateway:
            await embed(gateway, *make_inputs("warm day in Paris", "a warm day in Paris", "cold tea"))
            await recorded.until(lambda: "headrace.v1.LlmService/Embed" in recorded.names)
    attributes = recorded.only("embeddings embed-1").attributes
    assert attributes is not None
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.usage.input_tokens"] == 11
