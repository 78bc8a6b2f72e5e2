"""Which facts a query finds: by words in any script, alike on both engines, and by vectors where a model makes them.

A word counts by how few facts hold it, and by how much of the fact's word it is: "like" finds "likes". A vector is a
model's numbers for a text, near for texts that say the same in other words. Vectors are stored as directions (of length
1), so that a cosine is a sum of products. All of them are compared, in a thread: with 1,536 numbers each, the 2,000
facts that a user may have cost 0.1 s of processor time.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import mul
from typing import TYPE_CHECKING

import grpc
import structlog
from msgspec.structs import replace

from headrace.errors import ContextLengthExceeded, HeadraceError, InvalidRequest
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2
from services.memory.storage.records.user_facts import Fact, FactChange
from services.memory.storage.search import split_terms
from services.runtime.rpc.call_ids import forward_metadata

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub


TERMS_MAX = 64
"""Words of one query: with 2,000 facts they cost some 30 ms."""

STEM_CHARS = 3
"""Shortest word of a fact that a longer word of the query may begin with, and shortest part of a Latin word."""


def rank_facts(query: str, facts: Sequence[Fact]) -> list[tuple[Fact, float]]:
    """Return the facts that hold a word of `query`, with their scores, the best first."""
    terms = split_terms(query.casefold())[:TERMS_MAX]
    words = [split_terms(f"{fact.topic} {fact.text}".casefold()) for fact in facts]
    matches = {word: found for word in {word for each in words for word in each} if (found := _match_word(word, terms))}
    best: list[dict[int, float]] = []
    held: defaultdict[int, int] = defaultdict(int)
    for each in words:
        shares: dict[int, float] = {}
        for word in each:
            for index, share in matches.get(word, ()):
                shares[index] = max(share, shares.get(index, 0.0))
        best.append(shares)
        for index in shares:
            held[index] += 1
    weights = {index: math.log((len(facts) + 1) / count) for index, count in held.items()}
    ranked = [
        (fact, sum(share * weights[index] for index, share in shares.items()))
        for fact, shares in zip(facts, best, strict=True)
        if shares
    ]
    return sorted(ranked, key=lambda row: (-row[1], -row[0].n))


def _match_word(word: str, terms: Sequence[str]) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for index, term in enumerate(terms):
        if len(term) < STEM_CHARS and term.isascii():
            if term == word:  # as a part it is in nearly all
                found.append((index, 1.0))
        elif term in word:
            found.append((index, len(term) / len(word)))
        elif len(word) >= STEM_CHARS and term.startswith(word):
            found.append((index, len(word) / len(term)))
    return found


TIMEOUT_S = 3.0
"""A run's first word may wait for it; without an answer facts are found by their words."""

MISSING_MAX = 32
"""Facts that get their vectors with one query: those that were stored since, or before there was a model."""

TEXT_CHARS_MAX, SHORT_CHARS_MAX = 2000, 400
"""Characters of a text that its vector is of, and those where the model refuses one that is longer: the smallest models
take 512 tokens."""

ATTEMPTS = ((TEXT_CHARS_MAX, MISSING_MAX), (SHORT_CHARS_MAX, MISSING_MAX), (SHORT_CHARS_MAX, 0))
"""Characters of each text and facts beside the query, each tried where the model refuses the texts before it: one text
that is refused would else cost the query its vector, each time."""

SIMILARITY_MIN = 0.3
"""Cosine from which a fact without a word of the query is found: models for which texts that have nothing in common are
near 0 give such vectors."""

log = structlog.get_logger()


class FactVectors:
    def __init__(self, llm: LlmServiceAsyncStub, model: str) -> None:
        """Have the gateway's `model`, provider/model, make the vectors."""
        self._llm = llm
        self.model = model

    async def embed(self, query: str, facts: Sequence[Fact]) -> tuple[bytes, dict[str, Fact]]:
        """Return the query's vector, and by id those of `facts` that lacked theirs; nothing without an answer."""
        missing = [fact for fact in facts if fact.vector_model != self.model]
        texts = [query, *(f"{fact.topic} {fact.text}".strip() for fact in missing)]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                first, *others = await self._embed_texts(texts)
        except (HeadraceError, grpc.aio.AioRpcError, TimeoutError) as error:
            log.warning("facts not embedded", model=self.model, reason=_name_reason(error))
            return b"", {}
        made = zip(missing, others, strict=False)  # those that there was no room for get theirs another time
        return first, {fact.uuid: replace(fact, vector=vector, vector_model=self.model) for fact, vector in made}

    def add_similar(
        self, query: bytes, facts: Sequence[Fact], ranked: Sequence[tuple[Fact, float]]
    ) -> list[tuple[Fact, float]]:
        """Add facts that are near the query to those that hold its words; to each score its cosine is added. Blocks."""
        scores = {fact.uuid: score for fact, score in ranked}
        direction = _read_vector(query)
        for fact in facts:
            # Another model's numbers mean something else, also where they are as many.
            is_comparable = fact.vector_model == self.model and len(fact.vector) == len(query)
            similarity = sum(map(mul, direction, _read_vector(fact.vector))) if is_comparable else 0.0
            if fact.uuid in scores or similarity >= SIMILARITY_MIN:
                scores[fact.uuid] = scores.get(fact.uuid, 0.0) + max(0.0, similarity)
        found = [(fact, scores[fact.uuid]) for fact in facts if fact.uuid in scores]
        return sorted(found, key=lambda row: (-row[1], -row[0].n))

    async def _embed_texts(self, texts: Sequence[str]) -> list[bytes]:
        """Return the directions of the first texts, of one at least. Raises HeadraceError, grpc.aio.AioRpcError."""
        provider_key, _, model = self.model.partition("/")
        for chars_max, missing_max in ATTEMPTS:
            inputs = [llm_pb2.EmbeddingInput(text=text[:chars_max]) for text in texts[: 1 + missing_max]]
            request = llm_pb2.EmbedRequest(provider_key=provider_key, model=model, inputs=inputs)
            try:
                with rpc_errors():
                    reply = await self._llm.Embed(request, timeout=TIMEOUT_S, metadata=forward_metadata())
            except (ContextLengthExceeded, InvalidRequest):
                if not missing_max:
                    raise
            else:
                return [_make_direction(embedding.vector) for embedding in reply.embeddings]
        raise AssertionError("the last attempt returns or raises")


def keep_vectors(known: Sequence[Fact], made: Mapping[str, Fact]) -> FactChange:
    """Store the vectors of `made` beside those of them that say what they said when their vectors were made."""
    changed = [
        replace(fact, vector=new.vector, vector_model=new.vector_model)
        for fact in known
        if (new := made.get(fact.uuid)) is not None and (fact.text, fact.topic) == (new.text, new.topic)
    ]
    return FactChange(changed[0] if changed else next(iter(made.values())), changed)


def _name_reason(error: HeadraceError | grpc.aio.AioRpcError | TimeoutError) -> str:
    match error:
        case HeadraceError():
            return error.reason
        case grpc.aio.AioRpcError():
            return error.code().name
        case _:
            return f"no answer in {TIMEOUT_S:g} s"


def _make_direction(vector: bytes) -> bytes:
    """Return a vector with the length 1; none for one without a direction."""
    numbers = _read_vector(vector)
    length = math.hypot(*numbers)
    if not 0 < length < math.inf:
        return b""
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def _read_vector(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)
