"""One attempt at one provider, with its outcome for breaker, log and metrics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import orjson

from headrace.errors import (
    BadFrame,
    ContextLengthExceeded,
    HeadraceError,
    InvalidRequest,
    Overloaded,
    ProviderAuthentication,
    ProviderUnavailable,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    StreamStalled,
)
from headrace.v1.llm_pb2 import ChatRequest, LlmDelta, LlmStarted
from services.llm_gateway.calls.refused_fields import (
    CACHE,
    FORM,
    REPAIRABLE,
    SCHEMA,
    STREAM,
    SYSTEM,
    TEXT_WITH_CALLS,
    Path,
    RefusedFields,
    choose_settings,
    find_optional_fields,
    find_refused_field,
)
from services.llm_gateway.calls.retry_plan import PlannedAttempt
from services.llm_gateway.fitting.fitted_request import fit_request, list_refused_pictures
from services.llm_gateway.fitting.refused_parts import leave_out_refused
from services.llm_gateway.fitting.turns import move_instructions, separate_texts
from services.llm_gateway.http.client import ProviderRequest, ProviderStream, opening_stream
from services.llm_gateway.protocols.common.answer_reader import AnswerSource
from services.llm_gateway.protocols.common.request_rules import merge_extra_body
from services.llm_gateway.protocols.registry import PROTOCOLS
from services.llm_gateway.providers.provider_file import find_window
from services.llm_gateway.telemetry import metrics
from services.llm_gateway.telemetry.attempt_span import Answer, tracing_attempt
from services.llm_gateway.telemetry.interaction_log import CallRecord
from services.runtime.clock import monotonic_s
from services.runtime.rpc.push_stream import MessageSink
from services.runtime.telemetry import spans

if TYPE_CHECKING:
    from services.llm_gateway.calls.model_caller import ModelCaller

TOKEN_BYTES = 4
"""Bytes of UTF-8 per token."""

MEDIA_TOKENS = {"image": 1_000, "audio": 1_000, "file": 10_000}
"""About a megapixel at OpenAI, Anthropic and Qwen (2026-05), two minutes of sound, five pages."""

OUTPUT_TOKENS = 1_000

REPAIRS = {SYSTEM: move_instructions, TEXT_WITH_CALLS: separate_texts}
"""Changes of a request for models that have refused this."""

_MODEL_FAULTS = (ProviderUnavailable, Overloaded, StreamStalled, BadFrame)
"""Errors that count against the model in its breaker; a 4xx shows that it works."""

UNKNOWN_STATUSES = ("400", "422")

NEAR_WINDOW = 0.9
"""Share of the window from which an unexplained refusal counts as a full window."""

_NEUTRAL_ERRORS = (RateLimited, QuotaExceeded, QueueFull)


def estimate_input(request: ChatRequest) -> int:
    size_bytes, media_tokens = request.ByteSize(), 0
    for message in request.messages:
        for part in message.content:
            if tokens := MEDIA_TOKENS.get(part.WhichOneof("part") or ""):
                media_tokens += tokens
                size_bytes -= part.ByteSize()
    return size_bytes // TOKEN_BYTES + media_tokens


def estimate_total(request: ChatRequest) -> int:
    return estimate_input(request) + (request.max_tokens or OUTPUT_TOKENS)


class DeltaSink:
    __slots__ = ("_caller", "_send", "is_behind", "sent")

    def __init__(self, caller: MessageSink, send: Callable[[bytes], bool]) -> None:
        self._caller = caller
        self._send = send
        self.sent = 0
        self.is_behind = False

    def send_bytes(self, delta: bytes) -> None:
        self.sent += 1
        if not self._send(delta):
            self.is_behind = True

    def send_delta(self, delta: LlmDelta) -> None:
        self.send_bytes(delta.SerializeToString())

    async def wait_until_drained(self) -> None:
        await self._caller.wait_until_drained()
        self.is_behind = False


class Attempt:
    def __init__(
        self,
        models: ModelCaller,
        request: ChatRequest,
        planned: PlannedAttempt,
        caller: MessageSink,
        refused: RefusedFields,
    ) -> None:
        """`refused` are the fields that this call leaves out; a field that the model refuses is added."""
        target = planned.target
        self._models = models
        self._target = target
        self._protocol = PROTOCOLS[target.provider.protocol]
        fitted = fit_request(
            request, target.provider, target.model, target.entry, results_hold_media=self._protocol.results_hold_media
        )
        self._request = fitted.request
        self._planned = planned
        self._account = models.accounts.get_account(target.provider)
        self._refused = refused
        self.call = CallRecord(request.stage, target.provider.key, target.model, planned.number)
        self._secrets = (planned.key, *target.endpoint.secrets)
        send = models.interaction_log.wrap_send(caller.send, self._secrets)
        if spans.captures_content():
            self.call.answer = Answer()
            send = self.call.answer.wrap_send(send)
        self._sink = DeltaSink(caller, send)
        source = AnswerSource(
            target.provider,
            target.model,
            target.endpoint.url,
            frozenset(call.id for message in request.messages for call in message.tool_calls),
            fitted.tool_names,
            self._secrets,
        )
        self._reader = self._protocol.make_reader(source, self._sink.send_bytes)
        if spans.is_recording():
            self._reader.look_for_head()
        self._stream: ProviderStream | None = None
        self._deltas_at_finish: int | None = None
        """Number of deltas when the end was last awaited; some servers write a finish reason on every frame."""
        self._succeeded: bool | None = None
        self._never_began = False

    def tracing(self) -> AbstractContextManager[object]:
        """Record the block as this attempt's span."""
        target = self._target
        return tracing_attempt(self.call, target.provider.protocol, target.endpoint.url, self._request, self._secrets)

    @property
    def has_begun(self) -> bool:
        """Whether the caller has received reasoning, content or a tool call."""
        return self._reader.deltas > 0

    @property
    def sent(self) -> int:
        return self._sink.sent

    async def run_attempt(self, due_s: float) -> None:
        """Pass the provider's answer to the caller; usage precedes the error of a broken stream."""
        call, target = self.call, self._target
        optional: dict[Path, Any] = {}  # fields of the body that the model may refuse
        try:
            await self._models.pictures.fit(self._request, list_refused_pictures(target.provider, target.model))
            endpoint, url = target.endpoint, target.endpoint.url
            refused = self._refused.find_refused(target.provider, target.entry)
            paths = {path for path, _ in refused}
            for path, fit in REPAIRS.items():
                if path in paths:
                    fit(self._request)
            if STREAM in paths:
                url = url.replace("/converse-stream", "/converse")
            schema = self._request.output_format.schema
            provider, entry = choose_settings(refused, target.provider, target.entry, schema)
            fields = self._protocol.build_body(self._request, provider, entry)
            self._refused.leave_out(provider, entry, fields)
            optional = find_optional_fields(fields) | dict.fromkeys(REPAIRABLE, "")
            optional |= ({CACHE: ""} if provider.prompt_cache else {}) | ({SCHEMA: schema} if FORM in optional else {})
            body = orjson.dumps(merge_extra_body(fields, provider, entry))
            del fields  # the texts of all messages
            cloud = await self._models.cloud_credentials.make_headers(target.provider, url, body)
            own = self._protocol.build_headers(target.provider, self._planned.key)
            headers = {**own, **endpoint.headers, **cloud.headers}
            secrets = (*self._secrets, *cloud.secrets)
            request = ProviderRequest(target.provider, target.model, url, headers, body, secrets, endpoint.route)
            del body  # the request releases it when the provider answers
            self._sink.send_delta(
                LlmDelta(started=LlmStarted(provider=call.provider, model=call.model, attempt=call.attempt))
            )
            expected_tokens = estimate_total(self._request) if self._account.counts_tokens else 0
            async with (
                self._account.admitting(
                    expected_tokens, due_s, self._count_spent_tokens, tenant=self._planned.breaker_call.tenant
                ),
                opening_stream(self._models.pool, request) as self._stream,
            ):
                while not self._reader.is_over:
                    if not await self._stream.push_body(self._take_chunk) or self._stream.is_due:
                        self._take_chunk(b"")
                    elif self._sink.is_behind:
                        await self._sink.wait_until_drained()
                finish = self._reader.build_finish()
                call.outcome = call.finish_reason = finish.reason
                self._succeeded = True
                self._sink.send_delta(self._build_usage_delta())
                self._sink.send_delta(LlmDelta(finish=finish))
                await self._stream.read_end()
        except HeadraceError as given:
            if isinstance(given, ProviderAuthentication):
                self._models.cloud_credentials.forget()
            if (path := find_refused_field(optional, given)) is not None:
                self._refused.add(target.provider, target.entry, path, optional[path], given.message)
            is_mended = path is not None or leave_out_refused(self._request, given) is not None
            error = given if is_mended else self._take_for_full_window(given)
            self._record_failure(error)
            if self.has_begun:
                self._sink.send_delta(self._build_usage_delta())
            if error is not given:
                raise error from given
            raise
        finally:
            self._report_end()

    def _take_chunk(self, chunk: bytes) -> bool:
        """Read a chunk in the socket's callback; return False to stop reading."""
        answer = self._reader
        try:
            answer.feed_chunk(chunk)
        finally:
            # A chunk may hold both the first delta and an error, so this is done even if reading fails.
            if self.call.first_delta_s is None and answer.deltas:
                assert self._stream is not None
                self.call.first_delta_s = monotonic_s()
                self._stream.start_idle_watch()
                self._target.breaker.note_delta()
            if answer.has_finish and not answer.is_over and answer.deltas != self._deltas_at_finish:
                assert self._stream is not None
                self._deltas_at_finish = answer.deltas
                self._stream.await_end()
        return not (answer.is_over or self._sink.is_behind)

    def _build_usage_delta(self) -> LlmDelta:
        usage = self.call.usage = self._reader.build_usage()
        if not usage.input_tokens:
            usage.input_tokens, usage.estimated = estimate_input(self._request), True
        if (price := self._target.entry.price) is not None:
            usage.cost_usd = price.count_dollars(usage)
        return LlmDelta(usage=usage)

    def _take_for_full_window(self, error: HeadraceError) -> HeadraceError:
        """Return the error of a full window for an unexplained refusal of a request close to the window's size."""
        window = find_window(self._target.entry)
        is_unknown = isinstance(error, InvalidRequest) and error.metadata.get("httpStatus") in UNKNOWN_STATUSES
        if not (is_unknown and window and estimate_input(self._request) >= NEAR_WINDOW * window):
            return error
        full = ContextLengthExceeded(error.message)
        full.metadata = error.metadata
        return full

    def _record_failure(self, error: HeadraceError) -> None:
        self.call.outcome = error.reason
        self._never_began = isinstance(error, StreamStalled) and not self.has_begun
        self._succeeded = tell_success(error)
        if isinstance(error, ContextLengthExceeded):
            # The provider's own numbers are preferred; `role` is the last message's.
            known = {"currentTokens": str(estimate_input(self._request)), "role": self._request.messages[-1].role}
            if window := find_window(self._target.entry):
                known["maxTokens"] = str(window)
            error.metadata = known | error.metadata

    def _report_end(self) -> None:
        call, target = self.call, self._target
        call.deltas, call.head = self._reader.deltas, self._reader.head
        first_delta_s = None if call.first_delta_s is None else call.first_delta_s - call.started_s
        target.breaker.end_call(
            self._planned.breaker_call,
            succeeded=self._succeeded,
            never_began=self._never_began,
            first_delta_s=first_delta_s,
        )
        self._models.interaction_log.log_call(call)
        metrics.count_attempt(call, target.entry.name)

    def _count_spent_tokens(self) -> int:
        # A complete answer was billed even if none of it may be shown, for example a filtered one.
        if not self._account.counts_tokens or not (self.has_begun or self.call.usage):
            return 0
        usage = self._reader.build_usage()
        return (usage.input_tokens or estimate_input(self._request)) + usage.output_tokens


def tell_success(error: HeadraceError) -> bool | None:
    """Return how a failed attempt counts for the breaker: False as the model's failure, None not at all."""
    return None if isinstance(error, _NEUTRAL_ERRORS) else not isinstance(error, _MODEL_FAULTS)
