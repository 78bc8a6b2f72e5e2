"""Which facts a query finds: by the words that say what it is about, and by vectors where a model makes them.

A fact has to be about what is asked. Words such as "is" find none; words such as "name" find one only where nothing
else is asked; and a fact with one word of many gives way to the facts with more of them. Both engines find the same.

A vector is a model's numbers for a text, near for texts that say the same in other words. Vectors are stored as
directions (of length 1), so that a cosine is a sum of products. All of them are compared, in a thread: with 1,536
numbers each, the 2,000 facts that a user may have cost 0.1 s of processor time.
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
"""BM25's usual figures: how soon a repeated word counts no more, and how much less the words of a long fact count
(Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009)."""

WEAK_WEIGHT = 0.3
"""What a weak term counts, of another one."""

COVERED_MIN = 0.5
"""Share of a question's terms from which a fact is found by weak ones alone, and a plan at all: one word in common does
not make two tasks alike."""

RATIO_MIN = 0.4
"""Share of the best score of a term's facts from which a fact with that term is found: "What is my dog called?" is not
about the boat that is called Ada, where there is a fact about the dog."""


def rank_facts(query: str, facts: Sequence[Fact], *, are_plans: bool = False) -> list[tuple[Fact, float]]:
    """Return the facts that `query` is about, with their scores (BM25), the best first."""
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
"""A run's first word may wait for it; without an answer facts are found by their words."""

MISSING_MAX = 32
"""Facts that get their vectors with one query: those that were stored since, or before there was a model."""

TEXT_CHARS_MAX, SHORT_CHARS_MAX = 2000, 400
"""Characters of a text that its vector is of, and those where the model refuses one that is longer: the smallest models
take 512 tokens."""

ATTEMPTS = ((TEXT_CHARS_MAX, MISSING_MAX), (SHORT_CHARS_MAX, MISSING_MAX), (SHORT_CHARS_MAX, 0))
"""Characters of each text, and facts in addition to the query, for each attempt; the next one follows when the model
refuses a text. Otherwise one refused text would cost the query its vector each time."""

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
    """Store the vectors of `made` with those facts that still have the text the vectors were made of."""
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
