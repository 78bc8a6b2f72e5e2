"""headrace webhooks: events posted to other systems."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_text


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


PING_S, LOOK_S = 20, 0.5
"""How long a ping is waited for, and the time between looks."""


_type_option = click.option("--type", "types", multiple=True, help="Type of event, such as headrace.run.ended; again.")
_agent_option = click.option("--agent", "agents", multiple=True, help="Agent whose events are told; again for more.")


@click.group()
def webhooks() -> None:
    """Have other systems told of what happens."""


@webhooks.command("list")
@url_option
def list_webhooks(url: str) -> None:
    """List webhooks, the oldest first: id, URL, types of events, agents, name."""
    data = make_request(url, lambda facade: facade.get("/api/webhooks"))
    for webhook in msgspec.json.decode(data, type=tuple[Webhook, ...]):
        print_text(webhook.line)


@webhooks.command()
@url_option
@_type_option
@_agent_option
@click.option("--name", default="", help="What you call it; its host if left out.")
@click.argument("target")
def create(url: str, target: str, types: tuple[str, ...], agents: tuple[str, ...], name: str) -> None:
    """Have events posted to the URL TARGET; print the webhook's id and its secret, which is shown this once."""
    body = {"url": target, "types": types, "agentKeys": agents, "name": name}
    data = make_request(url, lambda facade: facade.post("/api/webhooks", body))
    created = msgspec.json.decode(data, type=Created)
    click.echo(created.webhook.webhook_id)
    click.echo(created.secret)


@webhooks.command()
@url_option
@_type_option
@_agent_option
@click.option("--all-agents", "allAgents", is_flag=True, help="Tell it of all agents' events.")
@click.option("--target", default=None, help="Another URL.")
@click.option("--name", default=None, help="Another name.")
@click.argument("webhook_id")
def update(
    url: str, webhook_id: str, types: tuple[str, ...], agents: tuple[str, ...], target: str | None, **fields: Any
) -> None:
    """Change a webhook; what is not given stays as it is."""
    body = {"webhookId": webhook_id, "url": target, "types": types or None, "agentKeys": agents or None} | fields
    given = {name: value for name, value in body.items() if value is not None}
    make_request(url, lambda facade: facade.post("/api/webhook", given))


@webhooks.command()
@url_option
@click.argument("webhook_id")
def pause(url: str, webhook_id: str) -> None:
    """Tell it of nothing until it is resumed."""
    make_request(url, lambda facade: facade.post("/api/webhook", {"webhookId": webhook_id, "paused": True}))


@webhooks.command()
@url_option
@click.argument("webhook_id")
def resume(url: str, webhook_id: str) -> None:
    """End a pause; what happened in it is not told."""
    make_request(url, lambda facade: facade.post("/api/webhook", {"webhookId": webhook_id, "paused": False}))


@webhooks.command()
@url_option
@click.option("--keep", "keep_s", default=86_400, type=click.IntRange(0, 604_800), help="Seconds the old one signs on.")
@click.argument("webhook_id")
def rotate(url: str, webhook_id: str, keep_s: int) -> None:
    """Print a new secret; the old one signs beside it for --keep seconds, a day if left out."""
    body = {"webhookId": webhook_id, "keepS": keep_s}
    data = make_request(url, lambda facade: facade.post("/api/webhook/secret", body))
    click.echo(msgspec.json.decode(data, type=Created).secret)


@webhooks.command()
@url_option
@click.argument("webhook_id")
def ping(url: str, webhook_id: str) -> None:
    """Deliver a test event, and say what became of it."""

    async def deliver(facade: FacadeClient) -> Delivery:
        data = await facade.post("/api/webhook/ping", {"webhookId": webhook_id})
        event_id = msgspec.json.decode(data, type=Delivery).event_id
        for _ in range(int(PING_S / LOOK_S)):
            page = msgspec.json.decode(await facade.get("/api/webhook/deliveries", webhookId=webhook_id), type=Page)
            found = next((delivery for delivery in page.deliveries if delivery.event_id == event_id), None)
            if found is not None and (found.state != "waiting" or found.failure):
                return found
            await asyncio.sleep(LOOK_S)
        return Delivery(event_id, state="waiting", failure="no outcome yet; see headrace webhooks deliveries")

    delivery = make_request(url, deliver)
    if delivery.state != "delivered":
        raise click.ClickException(delivery.failure)
    click.echo(f"delivered, answered with {delivery.status}")


@webhooks.command()
@url_option
@click.option("--state", default="", type=click.Choice(["", "waiting", "delivered", "dead"]), help="Only these.")
@click.option("--limit", default=50, type=click.IntRange(1, 200), help="How many.")
@click.argument("webhook_id")
def deliveries(url: str, webhook_id: str, state: str, limit: int) -> None:
    """List deliveries, the newest event first: time, state, event, type, subject, tries, last outcome."""
    fields = {"webhookId": webhook_id, "state": state, "pageSize": str(limit)}
    data = make_request(url, lambda facade: facade.get("/api/webhook/deliveries", **fields))
    for delivery in msgspec.json.decode(data, type=Page).deliveries:
        print_text(delivery.line)


@webhooks.command()
@url_option
@click.argument("webhook_id")
@click.argument("event_ids", nargs=-1)
def replay(url: str, webhook_id: str, event_ids: tuple[str, ...]) -> None:
    """Deliver events again, or all dead letters if none is named."""
    body = {"webhookId": webhook_id, "eventIds": event_ids}
    data = make_request(url, lambda facade: facade.post("/api/webhook/replay", body))
    click.echo(f"{msgspec.json.decode(data, type=Replayed).count} on their way")


@webhooks.command()
@url_option
@click.argument("webhook_ids", nargs=-1, required=True)
def delete(url: str, webhook_ids: tuple[str, ...]) -> None:
    """Delete webhooks; what waits is not delivered any more."""

    async def delete_all(facade: FacadeClient) -> None:
        for webhook_id in webhook_ids:
            await facade.delete("/api/webhook", webhookId=webhook_id)

    make_request(url, delete_all)
