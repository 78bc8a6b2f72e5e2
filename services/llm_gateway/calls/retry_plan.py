"""The retry policy of a call.

Until the caller has received anything, a provider's failure is retried after full jitter or Retry-After, then fails
over along `fallback`. A refused key or an empty account (402, or recognized by the vendor's message) is replaced
by the next key at once; if all accounts are empty, by `fallback`. Any other 4xx is final.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog
from prometheus_client import Counter

from headrace.errors import (
    HeadraceError,
    InvalidRequest,
    ProviderAuthentication,
    ProviderUnavailable,
    QueueFull,
    QuotaExceeded,
)
from services.llm_gateway.limits.breaker import Breaker, Call
from services.llm_gateway.provider_errors.refusal import ACCOUNT, EMPTY
from services.llm_gateway.providers.credentials import Endpoint
from services.llm_gateway.providers.provider_file import Model, Provider
from services.llm_gateway.telemetry.metrics import FAILOVERS, RETRIES
from services.runtime.randomness import choose_uniform

BACKOFF_S = 0.25
"""Upper bound of the first wait, doubled each time; full jitter spreads calls that failed together."""

BACKOFF_S_MAX = 4.0
"""Longest wait before a retry: a person waits for the first token, so a slower provider is abandoned for the next."""

RETRY_AFTER_S_MAX = 10.0
"""Longest Retry-After that is waited for; after a longer one the call fails over."""

ATTEMPT_S_MIN = 0.5
"""Time that another attempt needs before the deadline."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Target:
    provider: Provider
    entry: Model

    model: str

    endpoint: Endpoint
    keys: tuple[str, ...] = field(repr=False)
    """The keys to try, at least one; the empty key if none is needed."""

    breaker: Breaker


def find_unless_unusable(name: str, find: Callable[[], Target]) -> Target | HeadraceError:
    """Return the target, or the error if it does not support the request or lacks a key or address, logged with
    `name`."""
    try:
        return find()
    except (InvalidRequest, ProviderAuthentication, ProviderUnavailable) as error:
        log.warning("provider left out", target=name, reason=error.reason, said=error.message)
        return error


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    number: int

    target: Target
    key: str = field(repr=False)
    breaker_call: Call


class RetryPlan:
    def __init__(
        self,
        targets: Iterable[Target],
        due_s: float = float("inf"),
        *,
        tenant: str = "",
        jitter: Callable[[], float] = lambda: choose_uniform(0.0, 1.0),
    ) -> None:
        self._targets = iter(targets)
        self._target = next(self._targets)
        self._deadline_s = due_s
        self._tenant = tenant
        self._jitter = jitter
        self._number = 0
        self._failed_attempts = 0
        self._key_index = 0
        self._failure: HeadraceError | None = None

    def start_attempt(self) -> PlannedAttempt:
        """Return the next attempt.

        Raises:
            HeadraceError: The last failure, or ProviderUnavailable if all breakers are open.
        """
        while (refused_s := self._target.breaker.measure_block_s(self._tenant)) > 0:
            self._fail_over(self._failure or _make_breaker_error(self._target, refused_s))
        self._number += 1
        key = self._target.keys[self._key_index]
        return PlannedAttempt(self._number, self._target, key, self._target.breaker.start_call(self._tenant))

    def plan_retry(self, error: HeadraceError) -> float:
        """Return the wait in seconds before the next attempt, or raise a final `error`."""
        self._failure = error
        # Statuses differ: Gemini refuses an unknown key with 400, a leaked one with 403.
        is_key_refused = isinstance(error, ProviderAuthentication) and "httpStatus" in error.metadata
        is_empty = is_key_refused and error.metadata.get(ACCOUNT) == EMPTY
        if is_key_refused and self._key_index + 1 < len(self._target.keys):
            self._key_index += 1
            log.warning("provider key refused", provider=self._target.provider.key, key_number=self._key_index)
            return 0.0
        if is_empty:
            self._fail_over(error)
            return 0.0
        # The call has waited for our own quota as long as it could; overflow is not sent to another account.
        if not error.retriable or isinstance(error, QuotaExceeded | QueueFull):
            raise error
        self._failed_attempts += 1
        backoff_s = self._jitter() * min(BACKOFF_S * 2 ** (self._failed_attempts - 1), BACKOFF_S_MAX)
        # Calls refused together all return at Retry-After, so jitter is added to it.
        wait_s = backoff_s + (error.retry_after_s or 0.0)
        if self._may_repeat(error, wait_s):
            self._count_and_log("provider retry", RETRIES, error, wait_s=round(wait_s, 3))
            return wait_s
        self._fail_over(error)
        return 0.0

    def _may_repeat(self, error: HeadraceError, wait_s: float) -> bool:
        left_s = self._deadline_s - asyncio.get_running_loop().time() - wait_s
        return (
            self._failed_attempts < self._target.provider.retry.max_attempts
            and not self._target.breaker.measure_block_s(self._tenant)
            and (error.retry_after_s or 0.0) <= RETRY_AFTER_S_MAX
            and left_s >= ATTEMPT_S_MIN
        )

    def _fail_over(self, error: HeadraceError) -> None:
        following = next(self._targets, None)
        if following is None:
            raise error
        self._count_and_log("provider failover", FAILOVERS, error, to=following.provider.key)
        self._target = following
        self._key_index = self._failed_attempts = 0

    def _count_and_log(self, event: str, counter: Counter, error: HeadraceError, **facts: str | float) -> None:
        target = self._target
        counter.labels(target.provider.key, target.entry.name, error.reason).inc()
        log.warning(event, provider=target.provider.key, model=target.model, reason=error.reason, **facts)


def _make_breaker_error(target: Target, refused_s: float) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"provider {target.provider.key!r} keeps failing for model {target.model!r}, and its circuit breaker pauses "
        f"calls for {math.ceil(refused_s)} s",
        retry_after_s=refused_s,
        provider=target.provider.key,
        model=target.model,
    )
