"""The model calls of one compaction: reserved together, and charged as memory reports each."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from headrace.errors import BudgetExceeded
from headrace.v1 import common_pb2, memory_pb2
from services.orchestrator import metrics
from services.orchestrator.money.charges import Origin, Reservation
from services.orchestrator.money.spending import Spending
from services.orchestrator.peers.models import CallNeeds

CALLS_MAX = 32
"""Maximum calls of a compaction, needed when the summarizing model has a small window."""

CALLS_OF_ONE_REQUEST = 2
"""A first call, and a second if its output is not a summary."""

CALLS_AT_A_TIME = 4
"""Calls that memory makes concurrently when one request is not enough."""


@dataclass(slots=True)
class SummaryCharges:
    """Owned by one compaction."""

    _spending: Spending
    _needs: CallNeeds
    """The needs of each call."""

    _calls: int
    _reservation: Reservation
    _agent_key: str
    _moment: str
    """in_run, or between_runs."""
    _told: int = 0
    """Number of calls charged."""

    @classmethod
    @contextmanager
    def reserve(
        cls, spending: Spending, needs: CallNeeds, window_tokens: int, calls_left: int, agent_key: str, moment: str
    ) -> Generator[SummaryCharges]:
        """Reserve the calls for a summary of the input in `needs`; only one call if the money does not cover more.

        Raises:
            BudgetExceeded: A limit is reached.
            PriceUnknown: Money is limited, and the call's cost is unknown.
        """
        calls = max(1, min(calls_left, count_calls(needs.input_tokens, window_tokens)))
        each = replace(needs, input_tokens=min(needs.input_tokens, window_tokens or needs.input_tokens))
        with ExitStack() as stack:
            try:
                call = spending.side_call(each.multiply(calls), is_whole=True, calls_more=calls - 1)
                reservation = stack.enter_context(call)
            except BudgetExceeded:
                calls, call = 1, spending.side_call(each, is_whole=True)
                reservation = stack.enter_context(call)
            yield cls(spending, each, calls, reservation, agent_key, moment)

    @property
    def _origin(self) -> Origin:
        return Origin(self._agent_key, self._needs.model)

    def limit(self, request: memory_pb2.CompactRequest) -> None:
        request.summary_calls_max = self._calls
        if self._reservation.output_tokens_max is not None:
            request.summary_request_tokens_max = self._needs.input_tokens
            request.summary_tokens_max = self._reservation.output_tokens_max // self._calls

    def charge(self, usage: common_pb2.Usage) -> None:
        """Charge one call; the first was counted when it was reserved."""
        self._needs.add_price(usage)
        metrics.count_compaction(self._moment, usage)
        self._told += 1
        if self._told == 1:
            self._spending.settle(usage, self._origin, self._reservation)
        else:
            self._spending.charge_model_call(usage, self._origin)

    def charge_untold(self) -> None:
        """Charge the calls that may have been billed when memory's stream broke."""
        under_way = 1 if self._calls <= CALLS_OF_ONE_REQUEST else CALLS_AT_A_TIME
        if calls := min(under_way, self._calls - self._told):
            usage = self._needs.multiply(calls).estimate_usage()
            metrics.count_compaction(self._moment, usage)
            self._spending.settle(usage, self._origin)

    def give_back_unless_charged(self) -> None:
        """Return the call if no model was called."""
        if self._told == 0:
            self._spending.give_back_model_call()


def count_calls(input_tokens: int, window_tokens: int) -> int:
    """Return the number of calls needed to summarize this many tokens with this window; 0: window unknown."""
    if not window_tokens or input_tokens <= window_tokens:
        return CALLS_OF_ONE_REQUEST
    # At least half of each request's window is conversation; the rest are summaries of summaries.
    chunks = -(-2 * input_tokens // window_tokens)
    return min(CALLS_MAX, chunks + chunks // 2 + CALLS_OF_ONE_REQUEST)
