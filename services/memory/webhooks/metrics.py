"""Metrics of webhooks. What waits is counted in the store, so that all replicas say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.storage.records.webhooks import Backlog

TRIES = Counter(
    "headrace_webhook_tries",
    "Tries to deliver events; `outcome`: delivered, failed (tried again) or dead.",
    ("outcome",),
)
_WAITING = Gauge("headrace_webhook_waiting", "Deliveries that wait, of all webhooks; each replica has the same number.")
_DEAD = Gauge("headrace_webhook_dead", "Dead letters that are kept, of all webhooks; each replica has the same number.")
_OLDEST = Gauge("headrace_webhook_oldest_seconds", "Since when the oldest delivery waits, in seconds; 0: none does.")


def show_backlog(backlog: Backlog) -> None:
    _WAITING.set(backlog.waiting)
    _DEAD.set(backlog.dead)
    _OLDEST.set(max(0, now_ms() - backlog.oldest_at) / 1000 if backlog.oldest_at else 0)
