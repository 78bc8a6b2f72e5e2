"""One model call as a stream of deltas, after a check that calls and results are paired, as every provider requires."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import structlog

from headrace.errors import HeadraceError, UnpairedMessages
from headrace.v1 import llm_pb2
from headrace.v1.llm_pb2 import ChatRequest
from services.llm_gateway.calls.attempt import Attempt
from services.llm_gateway.calls.refused_fields import RefusedFields
from services.llm_gateway.calls.retry_plan import RetryPlan, Target, find_unless_unusable
from services.llm_gateway.fitting.pictures import PictureFitter
from services.llm_gateway.fitting.refused_parts import RefusedStates, leave_out_refused
from services.llm_gateway.http.pool import Pool
from services.llm_gateway.limits.breaker import Breakers
from services.llm_gateway.limits.quota import Accounts
from services.llm_gateway.protocols.common.media import check_media
from services.llm_gateway.protocols.registry import PROTOCOLS
from services.llm_gateway.providers.catalogue import Catalogue
from services.llm_gateway.providers.credentials import CloudCredentials, Credentials
from services.llm_gateway.telemetry.interaction_log import InteractionLog
from services.llm_gateway.telemetry.metrics import OPEN_STREAMS
from services.runtime.auth.identity import current_tenant
from services.runtime.ending import release_frames
from services.runtime.rpc.push_stream import MessageSink

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ModelCaller:
    catalogue: Catalogue
    credentials: Credentials
    accounts: Accounts
    breakers: Breakers
    pool: Pool
    interaction_log: InteractionLog
    refused_fields: RefusedFields = field(default_factory=RefusedFields)
    refused_states: RefusedStates = field(default_factory=RefusedStates)
    pictures: PictureFitter = field(default_factory=PictureFitter)
    cloud_credentials: CloudCredentials = field(default_factory=CloudCredentials)

    async def stream_chat(self, request: ChatRequest, caller: MessageSink, remaining_s: float | None = None) -> int:
        """Send one answer's deltas to `caller` and return their number; cancellation closes the provider's connection.

        `remaining_s` is the time to the caller's deadline; None without one.

        Raises:
            HeadraceError: One of those listed at StreamChat in llm.proto.
        """
        check_pairs(request.messages)
        due_s = float("inf") if remaining_s is None else asyncio.get_running_loop().time() + remaining_s
        request = self.refused_states.leave_out(request)
        plan = RetryPlan(self._iterate_targets(request), due_s, tenant=current_tenant())
        given, sent, refused = request, 0, RefusedFields(self.refused_fields)
        OPEN_STREAMS.count += 1
        try:
            while True:
                planned = plan.start_attempt()
                attempt, known = Attempt(self, request, planned, caller, refused), len(refused)
                try:
                    with attempt.tracing():
                        await attempt.run_attempt(due_s)
                    refused.share()
                    self.refused_states.add_dropped(given, request)
                    return sent + attempt.sent
                except HeadraceError as error:
                    if attempt.has_begun:
                        refused.share()
                        raise
                    sent += attempt.sent
                    wait_s = 0.0
                    if len(refused) == known:
                        if (shorter := leave_out_refused(request, error)) is not None:
                            log.warning("refused parts left out", model=request.model, said=error.message)
                            request = shorter
                        else:
                            wait_s = plan.plan_retry(error)
                    release_frames(error)
                await asyncio.sleep(wait_s)
        finally:
            OPEN_STREAMS.count -= 1

    def _iterate_targets(self, request: ChatRequest) -> Iterator[Target]:
        first = self._find_target(request.provider_key, request.model, request)
        yield first
        for fallback in first.provider.fallback:
            key, _, model = fallback.partition("/")
            if (key, model) == (first.provider.key, first.model):
                continue
            found = find_unless_unusable(fallback, partial(self._find_target, key, model, request))
            if isinstance(found, Target):
                yield found

    def _find_target(self, key: str, model: str, request: ChatRequest) -> Target:
        provider, entry = self.catalogue.find_model(key, model)
        protocol = PROTOCOLS[provider.protocol]
        check_media(request, entry, protocol.media)
        keys = self.credentials.find_keys(provider)
        endpoint = self.credentials.find_endpoint(provider, model, provider.path or protocol.path, protocol.query)
        return Target(provider, entry, model, endpoint, keys, self.breakers.get_breaker(key, entry.name))


def check_pairs(messages: Iterable[llm_pb2.Message]) -> None:
    """Check that one result per call follows each assistant message directly.

    Raises:
        UnpairedMessages: Names the unpaired call or result.
    """
    open_calls: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id, None) is None:
                raise _make_unpaired_error(message.tool_call_id, "result {!r} does not follow its call")
            continue
        _refuse_open_calls(open_calls)
        for call in message.tool_calls:
            if call.id in open_calls:
                raise _make_unpaired_error(call.id, "call {!r} appears twice in one message")
            open_calls[call.id] = call.name
    _refuse_open_calls(open_calls)


def _refuse_open_calls(calls: dict[str, str]) -> None:
    for call_id in calls:
        raise _make_unpaired_error(call_id, "call {!r} has no result right after it")


def _make_unpaired_error(call_id: str, text: str) -> UnpairedMessages:
    return UnpairedMessages(f"messages: {text.format(call_id)}", toolCallId=call_id)
