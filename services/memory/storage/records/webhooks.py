"""Webhooks as they are stored, and what is delivered to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEDULED, WAITING, DELIVERED, DEAD = "scheduled", "waiting", "delivered", "dead"
"""States of a delivery: its event has not come yet; it is to be tried (again); the receiver has it; it is given up."""

KEPT_MS = 7 * 24 * 3_600_000
"""How long a delivery is kept after its end."""


class Secret(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    text: str
    """`whsec_` and the key in base64."""
    ends_at: int = 0
    """When it ceases to sign, Unix milliseconds; 0: it is the newest one."""


class Webhook(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds."""

    webhook_id: str
    tenant: str
    version: int
    """Number of changes, which fences those that read an older one."""
    url: str
    secrets: tuple[Secret, ...]
    """The newest first."""
    types: tuple[str, ...]
    """Types of the events that it is told of."""
    created_at: int
    updated_at: int
    name: str = ""
    agent_keys: tuple[str, ...] = ()
    """Agents whose events it is told of; none: of all."""
    paused: bool = False
    matches_from: int = 0
    """Since when it is told of what it is told of now."""
    is_full: bool = False
    """Whether too many deliveries wait, so that new events are left out; kept beside the record."""
    run_id: str = ""
    """The one run that it is told of, in A2A's form; empty: it is an operator's webhook, told of all runs."""
    config_id: str = ""
    """Its name among those of the run."""
    token: str = ""
    auth_scheme: str = ""
    auth_credentials: str = ""

    @property
    def scope_words(self) -> tuple[str, ...]:
        """What its column `agents` has: keys of agents, or the run."""
        return (make_run_word(self.run_id),) if self.run_id else self.agent_keys

    def list_keys(self, now: int) -> list[str]:
        """Return the secrets that sign at this time, the newest first."""
        return [secret.text for secret in self.secrets if not secret.ends_at or secret.ends_at > now]


RUN_WORD = "run:"
"""Before a run's id in place of agents' keys."""


def make_run_word(run_id: str) -> str:
    return f"{RUN_WORD}{run_id}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row; the order of its fields is that of the columns."""

    webhook_id: str
    event_id: str
    tenant: str
    type: str
    subject: str
    """Deliveries of one subject to one webhook are made one after the other."""
    run_id: str
    gate_id: str
    agent_key: str
    occurred_at: int
    payload: str
    """The body of its requests, the same for all tries."""
    state: str
    began_at: int
    """Since when it is to be tried."""
    next_at: int
    """When it is tried next; while it is being tried, when whoever does so is taken for dead."""
    tries: int
    """Number of tries begun, which fences who tried before."""
    closed_at: int = 0
    status: int = 0
    """HTTP status of the last answer; 0: there was none."""
    failure: str = ""
    """Why the last try has failed."""


COLUMNS = ", ".join(Delivery.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery that the caller is to try, and nobody else until its time is over."""

    webhook: Webhook
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class TryResult:
    """What became of a try."""

    state: str
    """DELIVERED, DEAD, or WAITING for another try."""
    at: int
    """When it is tried again, else now."""
    status: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    waiting: int = 0
    dead: int = 0
    oldest_at: int = 0
    """Since when the oldest one waits; 0: none does."""


@dataclass(frozen=True, slots=True)
class DeliveryQuery:
    """Which deliveries of a tenant; empty fields allow any."""

    tenant: str
    webhook_id: str
    state: str
    size: int
    after: tuple[int, str, str] | None
    """Time, event and webhook of the delivery before the page."""

    def split(self, found: Sequence[Delivery]) -> tuple[list[Delivery], str]:
        """Return the page and the next one's token; `found` holds one more than the page if there are more."""
        page = list(found[: self.size])
        last = page[-1] if len(found) > self.size else None
        return page, "" if last is None else f"{last.occurred_at}.{last.event_id}.{last.webhook_id}"


_DECODER = msgspec.json.Decoder(Webhook)


def encode_webhook(webhook: Webhook) -> bytes:
    return msgspec.json.encode(webhook)


def decode_webhook(data: bytes) -> Webhook:
    """Raises msgspec.DecodeError if it is none."""
    return _DECODER.decode(data)
