"""Circuit breakers, one per provider and model in each replica.

An answer that breaks off counts as a failure; one that does not begin counts only if no other caller's answer began in
the meantime. If one tenant's failures have opened a breaker, another tenant may try: the requests can be the cause. A
success of that try closes the breaker.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from services.llm_gateway.providers.provider_file import Provider
from services.llm_gateway.telemetry import metrics
from services.runtime.clock import monotonic_s

FAILURES_MAX = 5
"""Failures among OUTCOMES_KEPT that open the breaker."""

OUTCOMES_KEPT = 10
"""Number of recent outcomes, enough to distinguish an outage from chance."""

OUTCOME_S_MAX = 60.0
"""Age from which outcomes are ignored."""

OPEN_S = 5.0
"""First pause; most outages of a single model are deployments or restarts."""

OPEN_S_MAX = 60.0
"""Longest pause, so that a recovery is noticed within a minute; pauses double with each failed probe."""

PROBE_S = 15.0
"""How long a probe blocks other calls if its answer does not begin."""

FAILED_TENANTS_MAX = 1000
"""Maximum tenants that may each fail once at an open breaker; further tenants wait like those that failed."""

State = Literal["closed", "open", "half-open"]

WINDOW_S = 300.0
"""Window of the error rate: long enough for a model with few calls, short enough that an outage shows at once and
disappears soon."""

KEPT_MAX = 1000
"""Number of attempts remembered, about 100 KB."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call admitted by the breaker."""

    tenant: str
    started_s: float
    is_tenant_try: bool
    """Whether it was admitted as another tenant's try."""


class Breaker:
    """The breaker of one model; `now` is monotonic, in seconds."""

    def __init__(self, provider: str, model: str, now: Callable[[], float] = monotonic_s) -> None:
        self._labels = (provider, model)
        self._now = now
        self._outcomes: deque[tuple[float, bool, str]] = deque(maxlen=OUTCOMES_KEPT)
        self._state: State = "closed"
        self._blocked_until_s = -math.inf
        """End of the pause, or the time of the next probe."""
        self._pause_s = OPEN_S
        self._answered_s = -math.inf
        self._recent = RecentAttempts()
        self._failed_tenants: set[str] = set()
        """Tenants that must wait while the breaker is not closed."""
        metrics.set_breaker_state("closed", *self._labels)

    @property
    def state(self) -> State:
        """`half-open` allows one call as a probe."""
        return self._state

    def measure_block_s(self, tenant: str) -> float:
        """Return the seconds until a call of `tenant` may start; 0 if it may start now."""
        may_try = tenant not in self._failed_tenants and len(self._failed_tenants) < FAILED_TENANTS_MAX
        return 0.0 if self._state == "closed" or may_try else self._measure_pause_s()

    def start_call(self, tenant: str) -> Call:
        """Record an allowed call; `end_call` follows."""
        now_s = self._now()
        is_tenant_try = self._state != "closed" and self._measure_pause_s() > 0
        if is_tenant_try:
            self._failed_tenants.add(tenant)  # this is its try
        elif self._state != "closed":
            self._blocked_until_s = now_s + PROBE_S
            self._set_state("half-open")
        return Call(tenant, now_s, is_tenant_try)

    def note_delta(self) -> None:
        """Record that the model has started an answer; if that is a probe's, the next call may start, too."""
        self._answered_s = self._now()
        if self._state == "half-open":
            self._blocked_until_s = self._answered_s

    def end_call(
        self, call: Call, *, succeeded: bool | None, never_began: bool = False, first_delta_s: float | None = None
    ) -> None:
        """Record an outcome; None does not count for the model. `first_delta_s` is measured from the call's start."""
        self._recent.add_attempt(self._now(), call.tenant, succeeded, first_delta_s)
        if never_began and self._answered_s > call.started_s:
            succeeded = None
        if call.is_tenant_try:
            if succeeded is None:
                self._failed_tenants.discard(call.tenant)
            elif succeeded and self._state != "closed":
                self._close()
            return
        match self._state, succeeded:
            case "closed", bool():
                now_s = self._now()
                self._outcomes.append((now_s, succeeded, call.tenant))
                recent = [outcome for outcome in self._outcomes if outcome[0] >= now_s - OUTCOME_S_MAX]
                failed = [tenant for _, good, tenant in recent if not good]
                if len(failed) >= FAILURES_MAX:
                    self._failed_tenants = set(failed)
                    self._start_pause()
            case "half-open", None:
                self._blocked_until_s = self._now()
            case "half-open", True:
                self._close()
            case "half-open", False:
                self._failed_tenants.add(call.tenant)
                self._pause_s = min(self._pause_s * 2, OPEN_S_MAX)
                self._start_pause()
            case _:
                pass  # the call began before the breaker opened

    def summarise_recent(self, tenant: str) -> AttemptSummary:
        return self._recent.summarise(self._now(), tenant)

    def _measure_pause_s(self) -> float:
        return max(self._blocked_until_s - self._now(), 0.0)

    def _close(self) -> None:
        self._outcomes.clear()
        self._failed_tenants.clear()
        self._pause_s = OPEN_S
        self._set_state("closed")

    def _start_pause(self) -> None:
        self._blocked_until_s = self._now() + self._pause_s
        self._set_state("open")

    def _set_state(self, state: State) -> None:
        self._state = state
        metrics.set_breaker_state(state, *self._labels)


class Breakers:
    def __init__(self) -> None:
        self._breakers: dict[tuple[str, str], Breaker] = {}
        self._providers: dict[str, Provider] = {}

    def get_breaker(self, provider: str, model: str) -> Breaker:
        """Return the breaker of a model, by its name in the provider file."""
        key = (provider, model)
        if key not in self._breakers:
            self._breakers[key] = Breaker(provider, model)
        return self._breakers[key]

    def keep_configured(self, providers: Iterable[Provider]) -> None:
        """Forget the breakers of models that are not configured any more, and of providers whose entry has changed."""
        current = {provider.key: provider for provider in providers}
        kept = [provider for key, provider in current.items() if self._providers.get(key, provider) == provider]
        self._providers = current
        configured = {(provider.key, model.name) for provider in kept for model in provider.models}
        for key in self._breakers.keys() - configured:
            del self._breakers[key]
            metrics.forget_breaker(*key)


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    own: int
    """Attempts of the current tenant."""
    error_ratio: float | None
    """Error ratio of the attempts that count for the model; None without any."""
    first_delta_s: float | None
    first_delta_s_p95: float | None


@dataclass(frozen=True, slots=True)
class _Attempt:
    ended_s: float
    tenant: str
    succeeded: bool | None
    first_delta_s: float | None


class RecentAttempts:
    def __init__(self) -> None:
        self._attempts: deque[_Attempt] = deque(maxlen=KEPT_MAX)

    def add_attempt(self, now_s: float, tenant: str, succeeded: bool | None, first_delta_s: float | None) -> None:
        """Record an attempt that has just ended; `succeeded` as the breaker counts it, `first_delta_s` from the
        attempt's start."""
        self._attempts.append(_Attempt(now_s, tenant, succeeded, first_delta_s))

    def summarise(self, now_s: float, tenant: str) -> AttemptSummary:
        recent = [attempt for attempt in self._attempts if attempt.ended_s > now_s - WINDOW_S]
        judged = [attempt.succeeded for attempt in recent if attempt.succeeded is not None]
        first_deltas = sorted(attempt.first_delta_s for attempt in recent if attempt.first_delta_s is not None)
        return AttemptSummary(
            own=sum(attempt.tenant == tenant for attempt in recent),
            error_ratio=judged.count(False) / len(judged) if judged else None,
            first_delta_s=first_deltas[len(first_deltas) // 2] if first_deltas else None,
            first_delta_s_p95=first_deltas[len(first_deltas) * 95 // 100] if first_deltas else None,
        )
