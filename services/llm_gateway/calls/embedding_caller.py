"""One call for embeddings: attempts until one gets a complete answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import orjson
import structlog

from headrace.errors import BadFrame, HeadraceError, InvalidRequest, NotFound
from headrace.v1 import common_pb2, llm_pb2
from services.llm_gateway.calls.attempt import TOKEN_BYTES, tell_success
from services.llm_gateway.calls.model_caller import ModelCaller
from services.llm_gateway.calls.refused_fields import STATUSES, RefusedFields
from services.llm_gateway.calls.retry_plan import PlannedAttempt, RetryPlan, Target, find_unless_unusable
from services.llm_gateway.http.client import ProviderRequest, opening_stream
from services.llm_gateway.protocols.openai import embeddings
from services.llm_gateway.protocols.registry import PROTOCOLS
from services.llm_gateway.providers.provider_file import Model, Provider
from services.llm_gateway.telemetry import metrics
from services.llm_gateway.telemetry.attempt_span import tracing_attempt
from services.llm_gateway.telemetry.interaction_log import CallRecord
from services.runtime.auth.identity import current_tenant
from services.runtime.newest import NewestDict
from services.runtime.telemetry import names

log = structlog.get_logger()

EMBEDDINGS = "embeddings"
"""Capability that a model must list, because most do not have it; also the stage of its calls in logs."""

ANSWER_BYTES_MAX = 40 * 1024 * 1024
"""The largest batch, 2,048 vectors of 3,072 numbers in base64, has 32 MiB."""

BATCH_SIZES_MAX = 256

_BATCH_SIZE = re.compile(
    r"batch size.{0,80}?(?:larger than|maximum allowed batch size)\D{0,8}(?P<size>\d{1,4})"
    r"|at most (?P<most>\d{1,4}) requests can be in one batch",
    re.IGNORECASE,
)
"""Matches what Bailian, SiliconFlow, Hugging Face's servers and Gemini say of too many inputs
(https://github.com/MemMachine/MemMachine/issues/864, https://github.com/n4ze3m/page-assist/issues/371, 2025)."""

INLINE_BYTES_MAX = 64 * 1024
"""Answers up to this size are read on the event loop, in well under 1 ms."""


@dataclass(frozen=True, slots=True)
class EmbeddingCaller:
    models: ModelCaller
    """Shares catalogue, credentials, quotas, breakers and connections with calls of chat models."""

    batch_sizes: NewestDict[tuple[str, str], int] = field(default_factory=lambda: NewestDict(BATCH_SIZES_MAX))
    """Maximum inputs of a request, by provider and entry, where a provider has named it."""

    async def embed(self, request: llm_pb2.EmbedRequest, remaining_s: float | None) -> llm_pb2.EmbedResponse:
        """Return the vectors; cancellation closes the provider's connection.

        Raises:
            HeadraceError: One of those listed at Embed in llm.proto.
        """
        for at, given in enumerate(request.inputs):
            if not given.text and not given.tokens.ids:
                raise InvalidRequest.of(f"inputs[{at}]", "must not be empty")
        if request.HasField("dimensions") and request.dimensions < 1:
            raise InvalidRequest.of("dimensions", "must be 1 or more")
        due_s = float("inf") if remaining_s is None else asyncio.get_running_loop().time() + remaining_s
        plan = RetryPlan(self._iterate_targets(request), due_s, tenant=current_tenant())
        refused = RefusedFields(self.models.refused_fields)
        while True:
            planned = plan.start_attempt()
            target = planned.target
            call = CallRecord(EMBEDDINGS, target.provider.key, target.model, planned.number, operation=names.EMBEDDINGS)
            try:
                with tracing_attempt(call, target.provider.protocol, target.endpoint.url, request):
                    response = await self._attempt(request, planned, call, due_s, refused)
                refused.share()
                return response
            except HeadraceError as error:
                is_mended = self._remember_batch_size(target, error, len(request.inputs))
                is_mended = is_mended or self._note_refused_encoding(target, error, refused)
                wait_s = 0.0 if is_mended else plan.plan_retry(error)
            await asyncio.sleep(wait_s)

    def _iterate_targets(self, request: llm_pb2.EmbedRequest) -> Iterator[Target]:
        """Yield the model at its provider, or at each usable provider that has it; never its fallbacks, which produce
        different vectors."""
        models = self.models.catalogue.list_models(request.provider_key, request.model)
        able = [(provider, entry) for provider, entry in models if EMBEDDINGS in entry.capabilities]
        if not able:
            known = [
                entry.name for _, entry in self.models.catalogue.list_models("", "") if EMBEDDINGS in entry.capabilities
            ]
            raise NotFound(
                f"model {request.model!r} is not configured for embeddings; known: {known}", model=request.model
            )
        found = [
            find_unless_unusable(provider.key, partial(self._make_target, provider, entry, request.model))
            for provider, entry in able
        ]
        usable = [target for target in found if isinstance(target, Target)]
        if not usable and isinstance(found[0], HeadraceError):
            raise found[0]
        yield from usable

    def _make_target(self, provider: Provider, entry: Model, model: str) -> Target:
        endpoint = self.models.credentials.find_endpoint(provider, model, embeddings.find_path(provider))
        keys = self.models.credentials.find_keys(provider)
        return Target(
            provider, entry, model, endpoint, keys, self.models.breakers.get_breaker(provider.key, entry.name)
        )

    async def _attempt(
        self,
        request: llm_pb2.EmbedRequest,
        planned: PlannedAttempt,
        call: CallRecord,
        due_s: float,
        refused: RefusedFields,
    ) -> llm_pb2.EmbedResponse:
        target, succeeded = planned.target, None
        account = self.models.accounts.get_account(target.provider)
        expected_tokens = request.ByteSize() // TOKEN_BYTES

        def count_spent() -> int:
            return call.usage.input_tokens if call.usage else 0

        try:
            async with account.admitting(expected_tokens, due_s, count_spent, tenant=planned.breaker_call.tenant):
                vectors, usage = await self._embed_batches(request, planned, refused)
                if not usage.input_tokens:
                    usage.input_tokens, usage.estimated = expected_tokens, True
                if target.entry.price is not None:
                    usage.cost_usd = target.entry.price.count_dollars(usage)
                call.usage = usage  # counted at the block's end
            call.outcome = call.finish_reason = "stop"
            succeeded = True
            return llm_pb2.EmbedResponse(
                provider_key=target.provider.key, model=target.model, embeddings=vectors, usage=usage
            )
        except HeadraceError as error:
            call.outcome, succeeded = error.reason, tell_success(error)
            raise
        finally:
            target.breaker.end_call(planned.breaker_call, succeeded=succeeded, never_began=False)
            self.models.interaction_log.log_call(call)
            metrics.count_attempt(call, target.entry.name)

    async def _embed_batches(
        self, request: llm_pb2.EmbedRequest, planned: PlannedAttempt, refused: RefusedFields
    ) -> tuple[list[llm_pb2.Embedding], common_pb2.Usage]:
        """Send the inputs in as few requests as the provider permits; return all vectors and the sum of usage."""
        vectors, usage = list[llm_pb2.Embedding](), common_pb2.Usage()
        size = self._find_batch_size(planned.target, len(request.inputs))
        for start in range(0, len(request.inputs), size):
            inputs = request.inputs[start : start + size]
            body = await self._post(request, inputs, planned, refused)
            read = embeddings.read_answer
            if len(body) > INLINE_BYTES_MAX:
                found, spent = await asyncio.to_thread(read, body, len(inputs))
            else:
                found, spent = read(body, len(inputs))
            vectors += found
            usage.input_tokens += spent.input_tokens
            usage.model_calls += spent.model_calls
        return vectors, usage

    def _find_batch_size(self, target: Target, inputs: int) -> int:
        return min(inputs, self.batch_sizes.get((target.provider.key, target.entry.name), inputs))

    def _remember_batch_size(self, target: Target, error: HeadraceError, inputs: int) -> bool:
        """Return whether the provider takes fewer inputs at once, as its error says."""
        match = _BATCH_SIZE.search(error.message) if isinstance(error, InvalidRequest) else None
        size = 0 if match is None else int(match["size"] or match["most"])
        if not 0 < size < self._find_batch_size(target, inputs):
            return False
        self.batch_sizes[target.provider.key, target.entry.name] = size
        log.warning("embeddings in batches", provider=target.provider.key, model=target.entry.name, size=size)
        return True

    def _note_refused_encoding(self, target: Target, error: HeadraceError, refused: RefusedFields) -> bool:
        """Return whether the next attempt omits the encoding, with which the provider gave no vectors."""
        is_refused = isinstance(error, InvalidRequest) and error.metadata.get("httpStatus") in STATUSES
        is_unreadable = isinstance(error, BadFrame) and "frameSizeBytes" not in error.metadata
        known = refused.list_fields(target.provider, target.entry)
        if not (is_refused or is_unreadable) or embeddings.ENCODING in (*target.entry.extra_body, *known):
            return False
        refused.add(target.provider, target.entry, (embeddings.ENCODING,), "base64", error.message)
        return True

    async def _post(
        self,
        request: llm_pb2.EmbedRequest,
        inputs: Iterable[llm_pb2.EmbeddingInput],
        planned: PlannedAttempt,
        refused: RefusedFields,
    ) -> bytes:
        target = planned.target
        protocol = PROTOCOLS[target.provider.protocol]
        endpoint = target.endpoint
        fields = embeddings.build_body(request, inputs, target.entry)
        refused.leave_out(target.provider, target.entry, fields)
        body = orjson.dumps(fields)
        cloud = await self.models.cloud_credentials.make_headers(target.provider, endpoint.url, body)
        headers = {**protocol.build_headers(target.provider, planned.key), **endpoint.headers, **cloud.headers}
        secrets = (planned.key, *endpoint.secrets, *cloud.secrets)
        asked = ProviderRequest(target.provider, target.model, endpoint.url, headers, body, secrets, endpoint.route)
        answer = bytearray()

        def take(chunk: bytes) -> bool:
            if not answer:
                stream.start_idle_watch()
            answer.extend(chunk)
            return len(answer) <= ANSWER_BYTES_MAX

        async with opening_stream(self.models.pool, asked, is_stream=False) as stream:
            if await stream.push_body(take):
                raise BadFrame(
                    f"the provider's embeddings have more than {ANSWER_BYTES_MAX} bytes; ask for fewer",
                    frameSizeBytes=len(answer),
                )
        return bytes(answer)
