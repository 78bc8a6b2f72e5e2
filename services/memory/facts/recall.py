"""Finds the facts for a query, by its significant words, and by vectors if a model makes them.

A fact must be about the query's subject. Words such as "is" find nothing; words such as "name" find a fact only if the
query has no better ones; and a fact with one word of many ranks below facts with more. Both engines find the same.

A vector is a model's representation of a text; texts with similar meanings have similar vectors. They are normalized to
length 1, so that a cosine is a sum of products. All are compared, in a thread: with 1,536 numbers each, a user's
maximum of 2,000 facts costs 0.1 s of processor time.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import mul
from typing import TYPE_CHECKING

import grpc
import structlog
from msgspec.structs import replace

from headrace.errors import ContextLengthExceeded, HeadraceError, InvalidRequest
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2
from services.memory.facts.words import Question, Term, find_languages, split_words
from services.memory.storage.records.user_facts import Fact, FactChange
from services.memory.storage.search import compute_rarity
from services.runtime.rpc.call_ids import forward_metadata

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub

K1, B = 1.2, 0.75
"""BM25's usual parameters: how quickly repeated words saturate, and how much long facts are discounted (Robertson and
Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009)."""

WEAK_WEIGHT = 0.3
"""Weight of a weak term relative to others."""

COVERED_MIN = 0.5
"""Minimum share of a question's terms for a fact to be found by weak terms alone, and for any plan to be found: tasks
with one word in common are not similar."""

RATIO_MIN = 0.4
"""Minimum share of the best score among a term's facts for another fact with that term: "What is my dog called?" must
not find the boat called Ada if there is a fact about the dog."""


def rank_facts(query: str, facts: Sequence[Fact], *, are_plans: bool = False) -> list[tuple[Fact, float]]:
    """Return the facts that match `query`, with their scores (BM25), best first."""
    asked = split_words(query)
    texts = [split_words(fact.question if are_plans else f"{fact.topic} {fact.text}") for fact in facts]
    scores: dict[int, float] = {}
    for language in find_languages(asked, chain.from_iterable(texts)):
        for index, score in _rank_texts(Question(asked, language), texts, are_plans=are_plans).items():
            scores[index] = max(score, scores.get(index, 0.0))
    return sorted(((facts[index], score) for index, score in scores.items()), key=lambda row: (-row[1], -row[0].n))


def _rank_texts(question: Question, texts: Sequence[Sequence[str]], *, are_plans: bool) -> dict[int, float]:
    matches = {word: found for word in set(chain.from_iterable(texts)) if (found := question.match(word))}
    frequencies: dict[int, dict[Term, float]] = {}
    for index, words in enumerate(texts):
        for found in filter(None, map(matches.get, words)):
            of_text = frequencies.setdefault(index, {})
            for term, share in found.items():
                of_text[term] = of_text.get(term, 0.0) + share
    held = Counter(chain.from_iterable(frequencies.values()))
    mean_length = sum(map(len, texts)) / max(1, len(texts))
    scores: dict[int, dict[Term, float]] = {}
    for index, of_text in frequencies.items():
        saturation = K1 * (1 - B + B * len(texts[index]) / mean_length)
        scores[index] = {
            term: _weigh(term) * compute_rarity(held[term], len(texts)) * share * (K1 + 1) / (share + saturation)
            for term, share in of_text.items()
        }
    return _drop_irrelevant(question, scores, are_plans=are_plans)


def _weigh(term: Term) -> float:
    return WEAK_WEIGHT if term.is_weak else 1.0


def _drop_irrelevant(
    question: Question, scores: Mapping[int, Mapping[Term, float]], *, are_plans: bool
) -> dict[int, float]:
    whole = sum(map(_weigh, question.terms))
    kept = {
        index: sum(terms.values())
        for index, terms in scores.items()
        if (not are_plans and not all(term.is_weak for term in terms)) or sum(map(_weigh, terms)) >= COVERED_MIN * whole
    }
    best = dict[Term, float]()
    for index, score in kept.items():
        for term in scores[index]:
            best[term] = max(score, best.get(term, 0.0))
    return {
        index: score for index, score in kept.items() if any(score >= RATIO_MIN * best[term] for term in scores[index])
    }


TIMEOUT_S = 3.0
"""Timeout of the model; a run's first word may wait for it. Without an answer facts are found by their words."""

MISSING_MAX = 32
"""Maximum facts that get their vectors with one query: those stored since the last, or before there was a model."""

TEXT_CHARS_MAX, SHORT_CHARS_MAX = 2000, 400
"""Characters of a text used for its vector, and after the model has refused a longer text: the smallest models accept
512 tokens."""

ATTEMPTS = ((TEXT_CHARS_MAX, MISSING_MAX), (SHORT_CHARS_MAX, MISSING_MAX), (SHORT_CHARS_MAX, 0))
"""For each attempt: characters of each text, and facts in addition to the query. The next attempt follows if the model
refuses a text; otherwise one refused text would cost the query its vector each time."""

SIMILARITY_MIN = 0.3
"""Minimum cosine for a fact without any of the query's words, given a model for which unrelated texts are near 0."""

log = structlog.get_logger()


class FactVectors:
    def __init__(self, llm: LlmServiceAsyncStub, model: str) -> None:
        """Use the gateway's `model`, as provider/model, for the vectors."""
        self._llm = llm
        self.model = model

    async def embed(self, query: str, facts: Sequence[Fact]) -> tuple[bytes, dict[str, Fact]]:
        """Return the query's vector, and by id those of `facts` that lacked one; empty without an answer."""
        missing = [fact for fact in facts if fact.vector_model != self.model]
        texts = [query, *(f"{fact.topic} {fact.text}".strip() for fact in missing)]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                first, *others = await self._embed_texts(texts)
        except (HeadraceError, grpc.aio.AioRpcError, TimeoutError) as error:
            log.warning("facts not embedded", model=self.model, reason=_name_reason(error))
            return b"", {}
        made = zip(missing, others, strict=False)  # facts beyond the limit get their vectors another time
        return first, {fact.uuid: replace(fact, vector=vector, vector_model=self.model) for fact, vector in made}

    def add_similar(
        self, query: bytes, facts: Sequence[Fact], ranked: Sequence[tuple[Fact, float]]
    ) -> list[tuple[Fact, float]]:
        """Add facts similar to the query to those with its words; each score is increased by its cosine. Blocks."""
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
        """Return the directions of the first texts, at least one. Raises HeadraceError, grpc.aio.AioRpcError."""
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
    """Store the vectors of `made` with the facts that still have the same text."""
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
    """Return the vector scaled to length 1; empty if its length is 0."""
    numbers = _read_vector(vector)
    length = math.hypot(*numbers)
    if not 0 < length < math.inf:
        return b""
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def _read_vector(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)
