"""Vectors of facts: a model's numbers for a text, near for texts that say the like in other words.

They stand beside the facts, of at most FACTS_MAX that a user sees, so that exact cosine is a matter of milliseconds.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import grpc
import structlog
from msgspec.structs import replace

from headrace.errors import HeadraceError
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2
from services.memory.storage.user_facts import Fact, FactChange
from services.runtime.rpc.call_ids import forward_metadata

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub

TIMEOUT_S = 3.0
"""A run's first word may wait for it; without an answer facts are found by their words."""

MISSING_MAX = 32
"""Facts that get their vectors with one query: those that were stored since, or before there was a model."""

QUERY_CHARS_MAX = 2000

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
        missing = [fact for fact in facts if fact.vector_model != self.model][:MISSING_MAX]
        texts = [query[:QUERY_CHARS_MAX], *(f"{fact.topic} {fact.text}".strip() for fact in missing)]
        provider_key, _, model = self.model.partition("/")
        request = llm_pb2.EmbedRequest(
            provider_key=provider_key, model=model, inputs=[llm_pb2.EmbeddingInput(text=text) for text in texts]
        )
        try:
            with rpc_errors():
                reply = await self._llm.Embed(request, timeout=TIMEOUT_S, metadata=forward_metadata())
        except (HeadraceError, grpc.aio.AioRpcError) as error:
            log.warning("facts not embedded", model=self.model, reason=getattr(error, "reason", "") or str(error.code))
            return b"", {}
        first, *others = [embedding.vector for embedding in reply.embeddings]
        made = zip(missing, others, strict=True)
        return first, {fact.uuid: replace(fact, vector=vector, vector_model=self.model) for fact, vector in made}


def keep_vectors(known: Sequence[Fact], made: Mapping[str, Fact]) -> FactChange:
    """Store the vectors of `made` beside those of them that say what they said when their vectors were made."""
    changed = [
        replace(fact, vector=new.vector, vector_model=new.vector_model)
        for fact in known
        if (new := made.get(fact.uuid)) is not None and (fact.text, fact.topic) == (new.text, new.topic)
    ]
    return FactChange(changed[0] if changed else next(iter(made.values())), changed)


def add_similar(query: bytes, facts: Sequence[Fact], ranked: Sequence[tuple[Fact, float]]) -> list[tuple[Fact, float]]:
    """Add facts that are near the query to those that hold its words; to each score its cosine is added."""
    scores = {fact.uuid: score for fact, score in ranked}
    direction = _read_direction(query)
    for fact in facts:
        similarity = _measure_cosine(direction, _read_direction(fact.vector))
        if fact.uuid in scores or similarity >= SIMILARITY_MIN:
            scores[fact.uuid] = scores.get(fact.uuid, 0.0) + max(0.0, similarity)
    found = [(fact, scores[fact.uuid]) for fact in facts if fact.uuid in scores]
    return sorted(found, key=lambda row: (-row[1], -row[0].n))


def _read_direction(vector: bytes) -> tuple[float, ...]:
    """Read a vector as one of length 1; none for one without a direction."""
    numbers = struct.unpack(f"<{len(vector) // 4}f", vector)
    length = math.hypot(*numbers)
    return tuple(number / length for number in numbers) if length else ()


def _measure_cosine(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Return the cosine of two directions; 0 for those of other lengths, as of two models."""
    return 1 - math.dist(a, b) ** 2 / 2 if a and len(a) == len(b) else 0.0
