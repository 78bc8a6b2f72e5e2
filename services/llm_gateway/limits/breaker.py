"""Circuit breakers, one per provider and model in each replica.

An answer that breaks off counts like a refusal.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Literal

from services.llm_gateway.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from services.llm_gateway.providers.provider_file import Provider

FAILURES_MAX = 5
"""Failures among OUTCOMES_KEPT that open the breaker."""

OUTCOMES_KEPT = 10
"""Enough to tell an outage from bad luck."""

OUTCOME_S_MAX = 60.0
"""Older outcomes are ignored."""

OPEN_S = 5.0
"""First pause; most outages of one model are a deployment or a restart."""

OPEN_S_MAX = 60.0
"""Longest pause, doubled with each failed probe, so that a recovery is noticed within a minute."""

PROBE_S = 15.0
"""Time for which a probe blocks other calls; its end could take minutes."""

State = Literal["closed", "open", "half-open"]


class Breaker:
    """The breaker of one model; `now` is monotonic, in seconds."""

    def __init__(self, provider: str, model: str, now: Callable[[], float] = time.monotonic) -> None:
        self._labels = (provider, model)
        self._now = now
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=OUTCOMES_KEPT)
        self._state: State = "closed"
        self._blocked_until_s = -math.inf
        """End of the pause, or the time of the next probe."""
        self._pause_s = OPEN_S
        metrics.set_breaker_state("closed", *self._labels)

    @property
    def state(self) -> State:
        """`half-open` allows one call as a probe."""
        return self._state

    @property
    def blocked_s(self) -> float:
        """Seconds until a call may start; 0 when one may."""
        return 0.0 if self._state == "closed" else max(self._blocked_until_s - self._now(), 0.0)

    def start_call(self) -> None:
        """Record an allowed call; `end_call` follows."""
        if self._state != "closed":
            self._blocked_until_s = self._now() + PROBE_S
            self._set_state("half-open")

    def end_call(self, *, succeeded: bool | None) -> None:
        """Record an outcome; None says nothing about the model."""
        match self._state, succeeded:
            case "closed", bool():
                now_s = self._now()
                self._outcomes.append((now_s, succeeded))
                recent = [good for at_s, good in self._outcomes if at_s >= now_s - OUTCOME_S_MAX]
                if recent.count(False) >= FAILURES_MAX:
                    self._start_pause()
            case "half-open", None:
                self._blocked_until_s = self._now()
            case "half-open", True:
                self._outcomes.clear()
                self._pause_s = OPEN_S
                self._set_state("closed")
            case "half-open", False:
                self._pause_s = min(self._pause_s * 2, OPEN_S_MAX)
                self._start_pause()
            case _:
                pass  # the call began before the breaker opened

    def _start_pause(self) -> None:
        self._blocked_until_s = self._now() + self._pause_s
        self._set_state("open")

    def _set_state(self, state: State) -> None:
        self._state = state
        metrics.set_breaker_state(state, *self._labels)


class Breakers:
    def __init__(self) -> None:
        self._breakers: dict[tuple[str, str], Breaker] = {}

    def get_breaker(self, provider: str, model: str) -> Breaker:
        """Return the breaker for a name in the provider file."""
        key = (provider, model)
        if key not in self._breakers:
            self._breakers[key] = Breaker(provider, model)
        return self._breakers[key]

    def keep_configured(self, providers: Iterable[Provider]) -> None:
        configured = {(provider.key, model.name) for provider in providers for model in provider.models}
        for key in self._breakers.keys() - configured:
            del self._breakers[key]
            metrics.forget_breaker(*key)
