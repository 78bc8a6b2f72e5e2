"""Webhooks as they are stored, and what is delivered to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from services.memory.storage.records.kind import Kind, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.sql import Statement, StatementRunner

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
    """Another one after each change, so that a writer that read an older one is refused."""
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


IS_OF_RUN = f"substr(agents, 1, {len(RUN_WORD) + 1}) = ',{RUN_WORD}'"

_RUN_ID = f"substr(agents, {len(RUN_WORD) + 2}, length(agents) - {len(RUN_WORD) + 2})"

_FORGET_MISSED = """
DELETE FROM deliveries WHERE webhook_id = $1 AND state = 'scheduled' AND next_at <= $2
    AND EXISTS (SELECT 1 FROM webhooks AS w WHERE w.webhook_id = $1 AND w.is_paused = 1)
"""
"""What came due while the webhook was paused."""


def _join_words(words: Sequence[str]) -> str:
    return f",{','.join(words)}," if words else ""


WEBHOOKS = Kind(
    "webhook",
    Webhook,
    "webhooks",
    {
        "webhook_id text": lambda webhook: webhook.webhook_id,
        "tenant text": lambda webhook: webhook.tenant,
        "types text": lambda webhook: _join_words(webhook.types),
        "agents text": lambda webhook: _join_words(webhook.scope_words),
        "is_paused integer": lambda webhook: int(webhook.paused),
        "matches_from bigint": lambda webhook: webhook.matches_from,
        "created_at bigint": lambda webhook: webhook.created_at,
    },
    order="created_at, webhook_id",
    kept={"is_full": "is_full integer"},
    get_tenant=lambda webhook: webhook.tenant,
)


class WebhookRecords(Records[Webhook]):
    def __init__(self, sql: StatementRunner, keys: Keyring) -> None:
        super().__init__(sql, WEBHOOKS, keys)
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when this process has stored deliveries."""
        self._wake = wake

    def wake(self) -> None:
        self._wake()

    async def list_own(self, tenant: str) -> list[Webhook]:
        """List the tenant's webhooks, the oldest first, without those of single runs."""
        return await self.select(f"tenant = $1 AND NOT {IS_OF_RUN}", tenant)

    async def list_of_run(self, tenant: str, run_id: str) -> list[Webhook]:
        """List the webhooks of one run of the tenant, the oldest first."""
        return await self.select("tenant = $1 AND agents = $2", tenant, _join_words((make_run_word(run_id),)))

    async def count_of_runs(self, tenant: str) -> int:
        """Count the tenant's webhooks of single runs."""
        return len(await self.fetch("1", f"tenant = $1 AND {IS_OF_RUN}", tenant))

    async def list_ids(self, tenant: str) -> list[tuple[str, str]]:
        """List the ids of the tenant's webhooks, each with its run, or "" if it has none; no key is needed."""
        columns = f"webhook_id, CASE WHEN {IS_OF_RUN} THEN {_RUN_ID} ELSE '' END"
        return [(webhook_id, run_id) for webhook_id, run_id in await self.fetch(columns, "tenant = $1", tenant)]

    async def put(self, record: Webhook, before: int = 0) -> bool:
        is_stored = await super().put(record, before)
        self._wake()  # what waited for the end of a pause is due
        return is_stored

    def list_changes_before(self, record: Webhook) -> list[Statement]:
        return [(_FORGET_MISSED, (record.webhook_id, record.updated_at))]

    async def delete(self, record_id: str) -> None:
        """Delete the webhook with its deliveries; no key is needed."""
        tables = ("webhooks", "deliveries")
        await self._sql.run(*((f"DELETE FROM {table} WHERE webhook_id = $1", (record_id,)) for table in tables))

    async def delete_of_run(self, tenant: str, run_id: str) -> None:
        """Delete the webhooks of one run of the tenant; no key is needed."""
        words = _join_words((make_run_word(run_id),))
        for (webhook_id,) in await self.fetch("webhook_id", "tenant = $1 AND agents = $2", tenant, words):
            await self.delete(webhook_id)
