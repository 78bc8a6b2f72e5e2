"""Quotas of a provider's account: calls over the quota wait in a queue.

Requests and tokens are counted over a sliding minute. A call reserves estimated tokens and corrects them at its end.
Limits are divided among the gateway's replicas.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import QueueFull, QuotaExceeded
from services.llm_gateway.providers.provider_file import Quota
from services.llm_gateway.telemetry.metrics import WAITING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from services.llm_gateway.providers.provider_file import Provider

WINDOW_S = 60.0

WAITING_MAX = 100
"""A longer queue would only hide that the quota is too small."""

WAIT_S_MAX = 120.0
"""Longest wait without a deadline: two windows."""

ANSWER_S = 0.25
"""A wait ends this long before the caller's deadline, so that the caller gets our error."""

RETRY_S = 1.0


@dataclass(slots=True)
class Reservation:
    """One request's share; `tokens` is an estimate while it runs."""

    at_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class _Waiter:
    tokens: int
    admission: asyncio.Future[Reservation]


class Account:
    def __init__(self, provider: str, quota: Quota | None, *, replicas: int = 1, window_s: float = WINDOW_S) -> None:
        self._provider = provider
        self._replicas = replicas
        self._window_s = window_s
        self._quota = quota or Quota()
        self._window: deque[Reservation] = deque()
        self._window_tokens = 0
        self._running = 0
        self._waiters: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def counts_tokens(self) -> bool:
        return self._quota.tokens_per_minute is not None

    def set_quota(self, quota: Quota | None) -> None:
        """Apply the limits of a changed provider file, keeping the counters."""
        self._quota = quota or Quota()
        self._admit_waiting()

    @asynccontextmanager
    async def admitting(self, tokens: int, due_s: float, spent: Callable[[], int]) -> AsyncGenerator[None]:
        """Wait for admission; the call runs inside the block, at whose end `spent` corrects `tokens`.

        `due_s` is the deadline on the loop's clock, infinite without one.

        Raises:
            QueueFull: The queue is full.
            QuotaExceeded: The call was not admitted in time.
        """
        reservation = await self._wait_for_admission(tokens, due_s)
        try:
            yield
        finally:
            self._release_reservation(reservation, spent())

    def _release_reservation(self, reservation: Reservation, tokens: int) -> None:
        if self._window and reservation.at_s >= self._window[0].at_s:
            self._window_tokens += tokens - reservation.tokens
        reservation.tokens = tokens
        self._running -= 1
        self._admit_waiting()

    async def _wait_for_admission(self, tokens: int, due_s: float) -> Reservation:
        loop = asyncio.get_running_loop()
        if not self._waiters and not self._time_until_free(tokens):
            return self._make_reservation(tokens)
        if len(self._waiters) >= WAITING_MAX:
            message = f"{WAITING_MAX} calls wait for the quota of provider {self._provider!r} already; try again later"
            raise QueueFull(message, retry_after_s=self._suggest_retry_after(tokens), provider=self._provider)
        place = _Waiter(tokens, loop.create_future())
        self._waiters.append(place)
        self._show_waiting()
        self._admit_waiting()
        try:
            # Unlike a timeout around the future, this does not cancel it when the wait is cut short.
            await asyncio.wait((place.admission,), timeout=min(due_s - ANSWER_S - loop.time(), WAIT_S_MAX))
            if not place.admission.done():
                message = f"the quota of provider {self._provider!r} is used up; try again later"
                raise QuotaExceeded(message, retry_after_s=self._suggest_retry_after(tokens), provider=self._provider)
        except BaseException:
            self._leave_line(place)
            raise
        return place.admission.result()

    def _leave_line(self, place: _Waiter) -> None:
        """Leave the queue, or return a late reservation."""
        if place.admission.done():
            self._release_reservation(place.admission.result(), 0)
            return
        self._waiters.remove(place)
        self._show_waiting()
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit queued calls strictly in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            wait_s = self._time_until_free(self._waiters[0].tokens)
            if wait_s:
                if wait_s < math.inf:
                    self._timer = asyncio.get_running_loop().call_later(wait_s, self._admit_waiting)
                return
            place = self._waiters.popleft()
            self._show_waiting()
            place.admission.set_result(self._make_reservation(place.tokens))

    def _make_reservation(self, tokens: int) -> Reservation:
        reservation = Reservation(asyncio.get_running_loop().time(), tokens)
        self._running += 1
        if self._quota.requests_per_minute or self._quota.tokens_per_minute:
            self._window.append(reservation)
            self._window_tokens += tokens
        return reservation

    def _time_until_free(self, tokens: int) -> float:
        """Return the seconds until a call may start; infinite when another must end first."""
        if self._running >= self._divide_limit(self._quota.concurrency):
            return math.inf
        requests_max = self._divide_limit(self._quota.requests_per_minute)
        # A request larger than the whole quota runs alone rather than never.
        tokens_max = self._divide_limit(self._quota.tokens_per_minute)
        return self._time_until_below(requests_max - 1, max(tokens_max - tokens, 0))

    def _time_until_below(self, requests_max: float, tokens_max: float) -> float:
        now_s = asyncio.get_running_loop().time()
        while self._window and self._window[0].at_s <= now_s - self._window_s:
            self._window_tokens -= self._window.popleft().tokens
        requests, tokens, wait_s = len(self._window), self._window_tokens, 0.0
        for oldest in self._window:
            if requests <= requests_max and tokens <= tokens_max:
                break
            requests, tokens = requests - 1, tokens - oldest.tokens
            wait_s = oldest.at_s + self._window_s - now_s
        return wait_s

    def _divide_limit(self, limit: int | None) -> float:
        return math.inf if limit is None else max(limit // self._replicas, 1)

    def _suggest_retry_after(self, tokens: int) -> float:
        wait_s = self._time_until_free(tokens)
        return wait_s if 0 < wait_s < math.inf else RETRY_S

    def _show_waiting(self) -> None:
        WAITING.labels(self._provider).set(len(self._waiters))


class Accounts:
    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._accounts: dict[str, Account] = {}

    def get_account(self, provider: Provider) -> Account:
        if provider.key not in self._accounts:
            self._accounts[provider.key] = Account(provider.key, provider.quota, replicas=self._replicas)
        return self._accounts[provider.key]

    def keep_configured(self, providers: Iterable[Provider]) -> None:
        quotas = {provider.key: provider.quota for provider in providers}
        for key in self._accounts.keys() - quotas.keys():
            # Calls that still run or wait hold a reference to the account.
            del self._accounts[key]
        for key, account in self._accounts.items():
            account.set_quota(quotas[key])
