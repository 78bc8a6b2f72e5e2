"""Embeddings through the official client; the orchestrator is scripted, all sockets are real."""

import base64
import struct
from pathlib import Path
from typing import Any

import openai
import pytest

from headrace.errors import HeadraceError, InvalidRequest, NotFound, Overloaded
from tests.support.facade.openai_api import client
from tests.support.facade.scripted import Script

NUMBERS = [0.1, -2.5, 1e-7]
VECTOR = struct.pack("<3f", *NUMBERS)


@pytest.mark.parametrize("encoding", ["", None, "float", "base64"])
async def test_vectors_are_returned_in_both_encodings(tmp_path: Path, encoding: Any) -> None:
    given: Any = {"encoding_format": encoding} if encoding else {}
    given |= {"extra_body": {"encoding_format": None}} if encoding is None else {}
    async with client(tmp_path, Script(vectors=[VECTOR, VECTOR])) as (api, facade):
        answer = await api.embeddings.create(model="embed-1", input=["a", "b"], dimensions=3, **given)
        (request,) = facade.script.requests
    assert (request.model, [item.text for item in request.inputs], request.dimensions) == ("embed-1", ["a", "b"], 3)
    assert [item.index for item in answer.data] == [0, 1]
    assert (answer.model, answer.usage.prompt_tokens, answer.usage.total_tokens) == ("embed-1", 12, 12)
    vector: Any = answer.data[1].embedding
    if encoding == "base64":
        vector = list(struct.unpack("<3f", base64.b64decode(vector)))
    assert struct.pack("<3f", *vector) == VECTOR
    assert vector == pytest.approx(NUMBERS)


@pytest.mark.parametrize(
    ("given", "texts", "tokens"),
    [
        ("one", ["one"], [[]]),
        ([1, 2], [""], [[1, 2]]),
        ([[1, 2], [3]], ["", ""], [[1, 2], [3]]),
        (["a", [3]], ["a", ""], [[], [3]]),
    ],
)
async def test_inputs_may_be_texts_or_tokens(tmp_path: Path, given: Any, texts: Any, tokens: Any) -> None:
    async with client(tmp_path, Script(vectors=[VECTOR] * len(texts))) as (api, facade):
        await api.embeddings.create(model="embed-1", input=given)
        (request,) = facade.script.requests
    assert [item.text for item in request.inputs] == texts
    assert [[*item.tokens.ids] for item in request.inputs] == tokens
    assert not request.HasField("dimensions")


async def test_a_large_batch_is_returned_in_full(tmp_path: Path) -> None:
    vectors = [struct.pack("<1000f", *([at / 7] * 1000)) for at in range(300)]
    async with client(tmp_path, Script(vectors=vectors)) as (api, _):
        for given in ({"encoding_format": "float"}, {}):
            fields: Any = {"model": "embed-1", "input": ["a"] * 300} | given
            answer: Any = await api.embeddings.create(**fields)
            assert [struct.pack("<1000f", *item.embedding) for item in answer.data] == vectors


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [1, "a"]}, "input"),
        ({"input": [-1]}, "input[0]"),
        ({"input": [[2**31]]}, "input[0][0]"),
        ({"input": {"a": 1}}, "input"),
        ({"dimensions": 0}, "dimensions"),
        ({"encoding_format": "int8"}, "encoding_format"),
    ],
)
async def test_a_bad_request_names_the_field(tmp_path: Path, fields: Any, param: str) -> None:
    async with client(tmp_path, Script(vectors=[VECTOR])) as (api, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.embeddings.create(**({"model": "embed-1", "input": "a"} | fields))
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (NotFound("no model", model="embed-2"), 404, "model_not_found", None),
        (InvalidRequest.of("inputs[1]", "must not be empty"), 400, "invalid_request", "input[1]"),
        (InvalidRequest("refused", provider="sim"), 502, "invalid_request", None),
        (Overloaded("too many", retry_after_s=5), 503, "overloaded", None),
    ],
)
async def test_failures_have_openais_error_format(
    tmp_path: Path, error: HeadraceError, status: int, code: str, param: str | None
) -> None:
    async with client(tmp_path, Script(vectors=error)) as (api, _):
        with pytest.raises(openai.APIStatusError) as caught:
            await api.embeddings.create(model="embed-2", input=["a", ""])
    assert (caught.value.status_code, caught.value.code, caught.value.param) == (status, code, param)
