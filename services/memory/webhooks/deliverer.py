"""Delivers waiting events: each replica claims some for a limited time, attempts them, and stores the outcome.

A process killed in between has delivered events without recording it; after the claim expires, another delivers them
again. Nothing is polled while nothing waits, except for occasional checks of other replicas' leftovers.
"""

from __future__ import annotations

import asyncio
import collections
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

import structlog
from prometheus_client import Counter, Gauge

from headrace.errors import HeadraceError
from services.memory.storage.records.webhooks import DEAD, DELIVERED, KEPT_MS, WAITING, TryResult
from services.memory.webhooks.forms import make_request
from services.runtime.clock import now_ms
from services.runtime.ending import guard_task
from services.runtime.randomness import choose_uniform

if TYPE_CHECKING:
    from services.memory.storage.records.deliveries import Webhooks
    from services.memory.storage.records.webhooks import Backlog, Delivery, LeasedDelivery
    from services.memory.webhooks.sender import Answer

TRIES = Counter(
    "headrace_webhook_tries",
    "Tries to deliver events; `outcome`: delivered, failed (tried again) or dead.",
    ("outcome",),
)
_WAITING = Gauge("headrace_webhook_waiting", "Deliveries that wait, of all webhooks; each replica has the same number.")
_DEAD = Gauge("headrace_webhook_dead", "Dead letters that are kept, of all webhooks; each replica has the same number.")
_OLDEST = Gauge("headrace_webhook_oldest_seconds", "Since when the oldest delivery waits, in seconds; 0: none does.")
"""Counted in the store, so that all replicas report the same."""


def show_backlog(backlog: Backlog) -> None:
    _WAITING.set(backlog.waiting)
    _DEAD.set(backlog.dead)
    _OLDEST.set(max(0, now_ms() - backlog.oldest_at) / 1000 if backlog.oldest_at else 0)


Send: TypeAlias = "Callable[[str, dict[str, str], bytes], Awaitable[Answer]]"
"""Posts a body with headers to a URL; takes less than CLAIM_MS, and never raises."""

CLAIM_MS = 60_000
"""Duration of a claim: several times that of an attempt."""

EACH = 4
"""Deliveries of a webhook claimed at a time. Up to twice as many, less one, may be in progress."""

FLIGHTS_MAX = 128
"""Maximum deliveries in progress in this process."""

TENANT_MAX = 32
"""Maximum of them for one tenant, because all receivers of a tenant may hang."""

LOOK_S = 60.0
"""Poll interval while nothing is known to wait."""

JITTER = (0.8, 1.2)

GATHER_S = 0.01
"""How long notifications are collected before a poll."""

RETRY_MS_MIN, RETRY_MS_MAX = 5_000, 3_600_000
"""Time to the next attempt: as long as the delivery has waited so far, within these bounds."""

PATIENCE_MS = 24 * 3_600_000
"""How long a delivery is attempted."""

COUNT_MS, FORGET_MS = 15_000, 3_600_000
"""Interval between counts of waiting deliveries, and between deletions of old ones."""

DRAIN_S = 5.0
"""Time for attempts to end when the service stops."""

log = structlog.get_logger()


class Deliverer:
    def __init__(self, webhooks: Webhooks, send: Send, look_s: float = LOOK_S) -> None:
        self._webhooks = webhooks
        self._send = send
        self._look_s = look_s
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._flights = collections.Counter[str]()
        """Deliveries in progress, by webhook."""
        self._left: defaultdict[str, int] = defaultdict(lambda: TENANT_MAX)
        """Deliveries that a tenant may still start."""
        self._counted_at = self._forgot_at = 0
        webhooks.listen(self._wake.set)

    async def run(self) -> None:
        """Deliver until `stop`, and until the deliveries in progress have ended."""
        async with asyncio.TaskGroup() as group:
            while not self._is_stopping:
                wait_s = self._look_s
                with _log_errors():
                    wait_s = await self._start_due(group)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s * choose_uniform(*JITTER)):
                        await self._wake.wait()
                        await asyncio.sleep(GATHER_S)
                self._wake.clear()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    async def _start_due(self, group: asyncio.TaskGroup) -> float:
        """Begin attempts; return the seconds until the next poll."""
        now = now_ms()
        await self._keep_house(now)
        count = FLIGHTS_MAX - self._flights.total()
        if count <= 0:
            return self._look_s
        busy = {webhook_id for webhook_id, flights in self._flights.items() if flights >= EACH}
        leased = await self._webhooks.claim(now, now + CLAIM_MS, EACH, count, busy, self._left)
        for claim in leased:
            self._flights[claim.webhook.webhook_id] += 1
            self._left[claim.webhook.tenant] -= 1
            group.create_task(self._deliver(claim))
        if leased:
            return 0.0
        next_at = await self._webhooks.find_next(now)
        return min(max(next_at - now_ms(), 0) / 1000 + GATHER_S, self._look_s) if next_at else self._look_s

    async def _keep_house(self, now: int) -> None:
        if now - self._counted_at >= COUNT_MS:
            self._counted_at = now
            show_backlog(await self._webhooks.count_backlog())
        if now - self._forgot_at >= FORGET_MS:
            self._forgot_at = now
            await self._webhooks.forget(now - KEPT_MS)

    async def _deliver(self, claim: LeasedDelivery) -> None:
        webhook, delivery = claim.webhook, claim.delivery
        try:
            with _log_errors(webhook_id=webhook.webhook_id, event_id=delivery.event_id):
                answer = await self._send(webhook.url, *make_request(webhook, delivery))
                result = judge_answer(delivery, answer, now_ms())
                if await self._webhooks.record(delivery, result):
                    TRIES.labels("failed" if result.state == WAITING else result.state).inc()
                if result.state == DEAD:
                    log.warning("webhook dead letter", webhook_id=webhook.webhook_id, event_id=delivery.event_id)
        finally:
            self._flights[webhook.webhook_id] -= 1
            if not self._flights[webhook.webhook_id]:
                del self._flights[webhook.webhook_id]
            self._left[webhook.tenant] += 1
            if self._left[webhook.tenant] == TENANT_MAX:
                del self._left[webhook.tenant]
            self._wake.set()  # later deliveries of its subject may follow


def judge_answer(delivery: Delivery, answer: Answer, now: int) -> TryResult:
    """Return the result of an attempt, to be stored."""
    if not answer.failure:
        return TryResult(DELIVERED, now, answer.status)
    ends_at = delivery.began_at + PATIENCE_MS
    if now >= ends_at:
        return TryResult(DEAD, now, answer.status, answer.failure)
    waited_ms = min(max(now - delivery.began_at, RETRY_MS_MIN), RETRY_MS_MAX)
    retry_at = min(now + round(waited_ms * choose_uniform(*JITTER)), ends_at)
    return TryResult(WAITING, retry_at, answer.status, answer.failure)


@asynccontextmanager
async def delivering(webhooks: Webhooks, send: Send, look_s: float = LOOK_S) -> AsyncGenerator[None]:
    """Deliver inside the block; leaving it waits up to DRAIN_S for deliveries in progress."""
    deliverer = Deliverer(webhooks, send, look_s)
    running = guard_task(asyncio.create_task(deliverer.run()))
    try:
        yield
    finally:
        deliverer.stop()
        await asyncio.wait([running], timeout=DRAIN_S)
        running.cancel()
        await asyncio.wait([running])


@contextmanager
def _log_errors(**fields: str) -> Generator[None]:
    """Log the error of one poll or one delivery, and continue with the others."""
    try:
        yield
    except HeadraceError as error:
        log.warning("webhooks not delivered", reason=error.reason, **fields)
    except Exception:
        log.exception("webhooks not delivered", **fields)
