"""What the facade says of webhooks."""

from __future__ import annotations

import msgspec

from headrace.cli.run_view.times import format_time


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """A webhook as GET /api/webhooks has it."""

    webhook_id: str
    url: str = ""
    name: str = ""
    types: tuple[str, ...] = ()
    agent_keys: tuple[str, ...] = ()
    paused: bool = False
    full: bool = False

    @property
    def line(self) -> str:
        words = [self.webhook_id, self.url, ",".join(self.types), ",".join(self.agent_keys) or "all agents"]
        words += ["paused"] * self.paused + ["full"] * self.full
        return "  ".join([*words, self.name])


class Created(msgspec.Struct, frozen=True):
    webhook: Webhook
    secret: str = ""


class Delivery(msgspec.Struct, frozen=True, rename="camel"):
    event_id: str
    type: str = ""
    state: str = ""
    occurred_at: int = 0
    tries: int = 0
    status: int = 0
    failure: str = ""
    subject: str = ""

    @property
    def line(self) -> str:
        tries = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        words = [format_time(self.occurred_at), self.state, self.event_id, self.type, self.subject, tries]
        return "  ".join([*words, *filter(None, [str(self.status or ""), self.failure])])


class Page(msgspec.Struct, frozen=True, rename="camel"):
    deliveries: tuple[Delivery, ...] = ()
    next_page_token: str = ""


class Replayed(msgspec.Struct, frozen=True):
    count: int = 0
