"""One attempt at one provider: started, what the provider sends, usage, finish; and what it says about the provider."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.errors import (
    BadFrame,
    ContextLengthExceeded,
    HeadraceError,
    Overloaded,
    ProviderUnavailable,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    StreamStalled,
)
from headrace.v1.llm_pb2 import ChatRequest, LlmDelta, LlmStarted
from services.llm_gateway.calls.delta_sink import Delivery
from services.llm_gateway.http.client import Ask, posting
from services.llm_gateway.limits.token_estimate import input_tokens, whole_tokens
from services.llm_gateway.protocols.registry import PROTOCOLS
from services.llm_gateway.telemetry import metrics
from services.llm_gateway.telemetry.interaction_log import Call

if TYPE_CHECKING:
    from headrace.v1 import common_pb2
    from services.llm_gateway.calls.retry_plan import Planned
    from services.llm_gateway.http.client import ProviderStream
    from services.llm_gateway.http.pool import Pool
    from services.llm_gateway.limits.quota import Account
    from services.llm_gateway.providers.provider_file import Model
    from services.llm_gateway.telemetry.interaction_log import InteractionLog
    from services.runtime.rpc.push_stream import MessageSink

_FAILURES = (ProviderUnavailable, Overloaded, StreamStalled, BadFrame)
"""What speaks against a provider's model. Its 4xx show that it works, and a rate limit is about us, not about it."""

_SAYS_NOTHING = (RateLimited, QuotaExceeded, QueueFull)


class Attempt:
    """Belongs to one call; used once."""

    def __init__(
        self,
        request: ChatRequest,
        planned: Planned,
        account: Account,
        caller: MessageSink,
        interaction_log: InteractionLog,
    ) -> None:
        target = planned.target
        self._request = _for_model(request, target.provider.key, target.model)
        self._target = target
        self._key = planned.key
        self._account = account
        self._log = interaction_log
        self.call = Call(request.stage, target.provider.key, target.model, planned.number)
        """What is told of it when it has ended."""
        self._protocol = PROTOCOLS[target.provider.protocol]
        taken_call_ids = (call.id for message in request.messages for call in message.tool_calls)
        self._delivery = Delivery(caller, interaction_log.shown(caller.send, planned.key))
        self._answer = self._protocol.answer(
            target.provider.key, target.model, taken_call_ids, planned.key, self._delivery.give
        )
        self._stream: ProviderStream | None = None
        self._succeeded: bool | None = None

    @property
    def has_begun(self) -> bool:
        """Whether reasoning, content or a tool call has reached the caller."""
        return self._answer.deltas > 0

    @property
    def sent(self) -> int:
        """Messages to the caller."""
        return self._delivery.sent

    async def run(self, pool: Pool, due_s: float) -> None:
        """Send the caller what the provider sends; a last usage with what is known comes before the error of a stream
        that had begun.

        Raises:
            HeadraceError: The attempt failed.
        """
        call = self.call
        try:
            ask = self._ask()
            self._delivery.tell(
                LlmDelta(started=LlmStarted(provider=call.provider, model=call.model, attempt=call.attempt))
            )
            async with (
                self._account.admitted(self._tokens_expected(), due_s, self._tokens_spent),
                posting(pool, ask) as self._stream,
            ):
                await self._read(self._stream)
                finish = self._answer.finish()
                call.outcome, self._succeeded = finish.reason, True
                self._delivery.tell(self._usage())
                self._delivery.tell(LlmDelta(finish=finish))
                await self._stream.end()
        except HeadraceError as error:
            self._failed(error)
            if self.has_begun:
                self._delivery.tell(self._usage())
            raise
        finally:
            self._ended()

    def _ask(self) -> Ask:
        target = self._target
        body = self._protocol.request_body(self._request, target.provider, target.entry)
        return Ask(target.provider, target.model, target.url, self._protocol.headers(self._key), body, self._key)

    async def _read(self, stream: ProviderStream) -> None:
        """Sleep while the answer goes from the provider's socket to the caller; wake when the caller cannot follow."""
        while not self._answer.is_over:
            if not await stream.flow(self._take):
                self._take(b"")
            elif self._delivery.is_behind:
                await self._delivery.drained()

    def _take(self, chunk: bytes) -> bool:
        """Read what has come, from the socket's callback; False: nothing more for now."""
        answer = self._answer
        try:
            answer.feed(chunk)
        finally:
            # A chunk may hold the first delta and what ends the stream.
            if self.call.first_delta_s is None and answer.deltas:
                self._begun()
        return not (answer.is_over or self._delivery.is_behind)

    def _begun(self) -> None:
        assert self._stream is not None
        self.call.first_delta_s = time.monotonic()
        self._stream.has_begun()

    def _usage(self) -> LlmDelta:
        self.call.usage = _priced(self._answer.usage(), self._target.entry)
        return LlmDelta(usage=self.call.usage)

    def _failed(self, error: HeadraceError) -> None:
        self.call.outcome = error.reason
        self._succeeded = None if isinstance(error, _SAYS_NOTHING) else not isinstance(error, _FAILURES)
        if isinstance(error, ContextLengthExceeded):
            error.metadata = self._overflow() | error.metadata

    def _overflow(self) -> dict[str, str]:
        """What the error of a full window says, where the provider did not; `role` is the last message's."""
        found = {"currentTokens": str(input_tokens(self._request)), "role": self._request.messages[-1].role}
        window = self._target.entry.context_window
        return found | ({"maxTokens": str(window)} if window else {})

    def _ended(self) -> None:
        call, target = self.call, self._target
        call.deltas = self._answer.deltas
        target.breaker.end(succeeded=self._succeeded)
        self._log.ended(call)
        first_delta_s = None if call.first_delta_s is None else call.first_delta_s - call.started_s
        metrics.attempt_ended(
            target.provider.key, target.entry.name, call.outcome, call.deltas, first_delta_s, call.usage
        )

    def _tokens_expected(self) -> int:
        return whole_tokens(self._request) if self._account.counts_tokens else 0

    def _tokens_spent(self) -> int:
        if not self._account.counts_tokens or not self.has_begun:
            return 0
        usage = self._answer.usage()
        return (usage.input_tokens or input_tokens(self._request)) + usage.output_tokens


def _for_model(request: ChatRequest, provider: str, model: str) -> ChatRequest:
    """`request` as it is sent to `provider`; a copy only for a fallback, whose model has another name."""
    if (request.provider_key, request.model) == (provider, model):
        return request
    other = ChatRequest()
    other.CopyFrom(request)
    other.provider_key, other.model = provider, model
    return other


def _priced(usage: common_pb2.Usage, model: Model) -> common_pb2.Usage:
    if (price := model.price) is not None:
        dollars = usage.input_tokens * price.input_per_m_tok + usage.output_tokens * price.output_per_m_tok
        usage.cost_usd = dollars / 1_000_000
    return usage
