"""Quotas of a provider's account: calls over the quota wait, and tenants take turns.

Requests and tokens are counted over a sliding minute. A call reserves estimated tokens and corrects them at its end.
Limits are divided among the gateway's replicas.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.errors import QueueFull, QuotaExceeded
from services.llm_gateway.limits.tenant_use import HELD_S, Reservation, TenantUse, TenantUses, Waiter
from services.llm_gateway.providers.provider_file import Provider, Quota
from services.llm_gateway.telemetry.metrics import WAITING

WINDOW_S = 60.0

WAITING_MAX = 100
"""Maximum queued calls of a tenant; a longer queue would only hide that the quota is too small."""

WAIT_S_MAX = 120.0
"""Longest wait without a deadline: two windows."""

ANSWER_S = 0.25
"""How long before the caller's deadline a wait ends, so that the caller gets our error."""

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Opening:
    is_full: bool
    wait_s: float
    """0: only the end of a call frees it."""


class AdmittedCall:
    """The block of an admitted call."""

    __slots__ = ("_account", "_admission", "_reservation", "_spent")

    def __init__(self, account: Account, admission: Coroutine[Any, Any, Reservation], spent: Callable[[], int]) -> None:
        self._account, self._admission, self._spent = account, admission, spent

    async def __aenter__(self) -> None:
        self._reservation = await self._admission

    async def __aexit__(self, *_: object) -> None:
        self._account.release_reservation(self._reservation, self._spent())


class Account:
    def __init__(
        self,
        provider: str,
        quota: Quota | None,
        *,
        replicas: int = 1,
        window_s: float = WINDOW_S,
        held_s: float = HELD_S,
    ) -> None:
        self._provider = provider
        self._replicas = replicas
        self._window_s = window_s
        self._held_s = held_s
        self._quota = quota or Quota()
        self._uses = TenantUses()
        self._window: deque[Reservation] = deque()
        self._window_tokens = 0
        self._running = 0
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def counts_tokens(self) -> bool:
        return self._quota.tokens_per_minute is not None

    def get_use(self, tenant: str) -> TenantUse:
        """Return the tenant's current use of the account."""
        now_s = asyncio.get_running_loop().time()
        self._forget_old(now_s)
        return self._uses.get_use(tenant, now_s)

    def find_opening(self) -> Opening:
        """Return whether the next call would wait now, including for other tenants, and how long the window makes it
        wait."""
        wait_s = self._time_until_below(1)
        return Opening(bool(self._waiting or wait_s or not self._count_free_places()), wait_s)

    def divide(self, limit: int) -> int:
        """Return this replica's part of a limit of the account."""
        return max(limit // self._replicas, 1)

    def set_quota(self, quota: Quota | None) -> None:
        """Apply the limits of a changed provider file, keeping the counters."""
        self._quota = quota or Quota()
        self._admit_waiting()

    def admitting(self, tokens: int, due_s: float, spent: Callable[[], int], *, tenant: str) -> AdmittedCall:
        """Wait for admission; the call runs inside the block, at the end of which `spent` corrects `tokens`.

        `due_s` is the deadline on the loop's clock, infinite if there is none.

        Raises:
            QueueFull: Too many calls of the tenant are waiting.
            QuotaExceeded: The call was not admitted in time.
        """
        return AdmittedCall(self, self.wait_for_admission(tokens, due_s, tenant), spent)

    def release_reservation(self, reservation: Reservation, tokens: int) -> None:
        use = reservation.use
        if reservation.is_in_window:
            self._window_tokens += tokens - reservation.tokens
            use.tokens += tokens - reservation.tokens
        reservation.tokens = tokens
        self._running -= 1
        use.running -= 1
        use.held_until_s = asyncio.get_running_loop().time() + self._held_s
        self._admit_waiting()

    async def wait_for_admission(self, tokens: int, due_s: float, tenant: str) -> Reservation:
        loop = asyncio.get_running_loop()
        use = self._uses.get_use(tenant, loop.time())
        if not (self._waiting or self._time_until_free(tokens) or self._time_until_unheld(use, self._list_holds())):
            return self._make_reservation(tokens, use)
        if len(use.waiters) >= WAITING_MAX:
            message = f"{WAITING_MAX} calls wait for the quota of provider {self._provider!r} already; try again later"
            raise QueueFull(message, retry_after_s=self._suggest_retry_after(tokens), provider=self._provider)
        place = Waiter(tokens, loop.create_future())
        use.waiters.append(place)
        self._count_waiting(1)
        self._admit_waiting()
        try:
            # Unlike a timeout around the future, this does not cancel it if the wait is cut short.
            await asyncio.wait((place.admission,), timeout=min(due_s - ANSWER_S - loop.time(), WAIT_S_MAX))
            if not place.admission.done():
                message = f"no place within the quota of provider {self._provider!r} came in time; try again later"
                raise QuotaExceeded(message, retry_after_s=self._suggest_retry_after(tokens), provider=self._provider)
        except BaseException:
            self._leave_line(place, use)
            raise
        return place.admission.result()

    def _leave_line(self, place: Waiter, use: TenantUse) -> None:
        """Leave the queue, or return a late reservation."""
        if place.admission.done():
            self.release_reservation(place.admission.result(), 0)
            return
        use.waiters.remove(place)
        self._count_waiting(-1)
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit queued calls: each tenant's in their order, and the tenants by their shares."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            use, wait_s = self._find_next()
            if use is None:
                if wait_s < math.inf:
                    self._timer = asyncio.get_running_loop().call_later(wait_s, self._admit_waiting)
                return
            place = use.waiters.popleft()
            self._count_waiting(-1)
            place.admission.set_result(self._make_reservation(place.tokens, use))

    def _find_next(self) -> tuple[TenantUse | None, float]:
        """Return the tenant whose call may start now, or None and the estimated seconds until one may."""
        wait_s = math.inf
        if not self._count_free_places():
            return None, wait_s
        holds = self._list_holds()
        for use in self._uses.rank_waiting(self._quota):
            # A tenant's smaller call never overtakes the first tenant's call, which might otherwise never start.
            if free_s := self._time_until_below(use.waiters[0].tokens):
                return None, min(wait_s, free_s)
            if not (unheld_s := self._time_until_unheld(use, holds)):
                return use, 0.0
            wait_s = min(wait_s, unheld_s)
        return None, wait_s

    def _make_reservation(self, tokens: int, use: TenantUse) -> Reservation:
        reservation = Reservation(asyncio.get_running_loop().time(), tokens, use)
        self._uses.take_turn(use, self._quota.get_weight(use.tenant))
        self._running += 1
        use.running += 1
        if self._quota.requests_per_minute or self._quota.tokens_per_minute:
            self._window.append(reservation)
            reservation.is_in_window = True
            self._window_tokens += tokens
            use.requests += 1
            use.tokens += tokens
        return reservation

    def _count_free_places(self) -> float:
        return max(self._divide_limit(self._quota.concurrency) - self._running, 0)

    def _list_holds(self) -> list[float]:
        """Return until when places are held for tenants that have none; at most half of all places are held."""
        places = self._divide_limit(self._quota.concurrency)
        if places == math.inf:
            return []
        holds = self._uses.list_holds(asyncio.get_running_loop().time())
        return holds[max(len(holds) - int(places) // 2, 0) :]

    def _time_until_unheld(self, use: TenantUse, holds: list[float]) -> float:
        """Return the seconds until a free place is not held for another tenant."""
        free = self._count_free_places()
        if not use.running or free > len(holds):
            return 0.0
        return holds[len(holds) - int(free)] - asyncio.get_running_loop().time()

    def _time_until_free(self, tokens: int) -> float:
        """Return the seconds until a call may start, ignoring held places; infinite if another call must end first."""
        return self._time_until_below(tokens) if self._count_free_places() else math.inf

    def _time_until_below(self, tokens: int) -> float:
        """Return the seconds until the window has room for a request of this many tokens."""
        requests_max = self._divide_limit(self._quota.requests_per_minute) - 1
        # A request larger than the whole quota runs alone rather than never.
        tokens_max = max(self._divide_limit(self._quota.tokens_per_minute) - tokens, 0)
        now_s = asyncio.get_running_loop().time()
        self._forget_old(now_s)
        requests, tokens_used, wait_s = len(self._window), self._window_tokens, 0.0
        for oldest in self._window:
            if requests <= requests_max and tokens_used <= tokens_max:
                break
            requests, tokens_used = requests - 1, tokens_used - oldest.tokens
            wait_s = oldest.at_s + self._window_s - now_s
        return wait_s

    def _forget_old(self, now_s: float) -> None:
        while self._window and self._window[0].at_s <= now_s - self._window_s:
            oldest = self._window.popleft()
            oldest.is_in_window = False
            self._window_tokens -= oldest.tokens
            oldest.use.requests -= 1
            oldest.use.tokens -= oldest.tokens

    def _divide_limit(self, limit: int | None) -> float:
        return math.inf if limit is None else self.divide(limit)

    def _suggest_retry_after(self, tokens: int) -> float:
        wait_s = self._time_until_free(tokens)
        return wait_s if 0 < wait_s < math.inf else RETRY_S

    def _count_waiting(self, change: int) -> None:
        self._waiting += change
        WAITING.labels(self._provider).set(self._waiting)


class Accounts:
    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self._accounts: dict[str, Account] = {}

    def get_account(self, provider: Provider) -> Account:
        if provider.key not in self._accounts:
            self._accounts[provider.key] = Account(provider.key, provider.quota, replicas=self.replicas)
        return self._accounts[provider.key]

    def keep_configured(self, providers: Iterable[Provider]) -> None:
        quotas = {provider.key: provider.quota for provider in providers}
        for key in self._accounts.keys() - quotas.keys():
            # Calls that still run or wait hold a reference to the account.
            del self._accounts[key]
        for key, account in self._accounts.items():
            account.set_quota(quotas[key])
