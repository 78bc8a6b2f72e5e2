"""Embeddings: a vector for each text, always the same, and close together for texts with common words."""

from __future__ import annotations

import base64
import math
import re
import struct
from hashlib import sha256
from typing import Any

from services.simulator.model_request import RequestRefused

PATH = "/v1/embeddings"

DIMENSIONS, DIMENSIONS_MAX = 256, 3072
"""Length of the vectors if the request gives none, and the maximum."""

INPUTS_MAX = 2048

_WORD = re.compile(r"\w+")


def build_answer(body: Any) -> dict[str, Any]:
    """Return the answer to a request's body.

    Raises:
        RequestRefused: It breaks one of OpenAI's rules.
    """
    if not isinstance(body, dict) or not isinstance(model := body.get("model"), str) or not model:
        raise RequestRefused("you must provide a model parameter")
    given = body.get("input")
    inputs = _list_inputs(given)
    if not 1 <= len(inputs) <= INPUTS_MAX or not all(inputs):
        raise RequestRefused("'$.input' is invalid. Please check the API reference.")
    size = body.get("dimensions", DIMENSIONS)
    if not isinstance(size, int) or not 1 <= size <= DIMENSIONS_MAX:
        raise RequestRefused(f"Invalid value for 'dimensions': expected 1 to {DIMENSIONS_MAX}.")
    vectors = [_embed(words, size) for words in inputs]
    if body.get("encoding_format", "float") == "base64":
        shown = [base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() for vector in vectors]
    else:
        shown = vectors
    tokens = sum(map(len, inputs))
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(shown)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _list_inputs(given: Any) -> list[list[str]]:
    """Return the words of each input; tokens count as words."""
    if isinstance(given, str):
        return [_split(given)]
    if not isinstance(given, list):
        return []
    if given and all(isinstance(token, int) for token in given):
        return [[str(token) for token in given]]
    return [_split(one) if isinstance(one, str) else [str(token) for token in one] for one in given]


def _split(text: str) -> list[str]:
    return _WORD.findall(text.lower()) or ([text] if text else [])


def _embed(words: list[str], size: int) -> list[float]:
    """Add one direction per word, and scale the sum to length 1."""
    total = [0.0] * size
    for word in words:
        digest = sha256(word.encode()).digest()
        for at in range(0, len(digest), 4):
            place = int.from_bytes(digest[at : at + 3], "big") % size
            total[place] += 1.0 if digest[at + 3] % 2 else -1.0
    length = math.sqrt(sum(number * number for number in total)) or 1.0
    return [number / length for number in total]
