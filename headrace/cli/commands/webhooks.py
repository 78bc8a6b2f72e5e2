"""headrace webhooks: events posted to other systems."""

from __future__ import annotations

import asyncio

import click

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.answers import Show, list_rows, show_fields
from headrace.v1 import webhook_pb2

PING_S, LOOK_S = 20, 0.5
"""How long a ping is waited for, and the time between looks."""


webhooks = CommandGroup("webhooks", help="Post events to other systems.")

add_command(
    webhooks,
    "list",
    "WebhookService/ListWebhooks",
    list_rows(
        *("webhook_id:id", "url", "types"),
        ("agents", lambda webhook: ",".join(webhook.agent_keys) or "all"),
        ("state", lambda webhook: ("paused" if webhook.paused else "active") + " full" * webhook.full),
        "name",
    ),
)
add_command(
    webhooks,
    "create",
    "WebhookService/CreateWebhook",
    show_fields("webhook.webhook_id", "secret"),
    about="Create a webhook that posts events to URL.\n\nPrints its id, and its secret, which is shown only once.",
    hidden="webhook_id paused",
)
add_command(webhooks, "update", "WebhookService/UpdateWebhook", hidden="paused")
add_command(
    webhooks,
    "pause",
    "WebhookService/UpdateWebhook",
    about="Pause a webhook: it receives no events.",
    fixed={"paused": True},
)
add_command(
    webhooks,
    "resume",
    "WebhookService/UpdateWebhook",
    about="Resume a paused webhook; it receives only new events.",
    fixed={"paused": False},
)
add_command(
    webhooks,
    "rotate",
    "WebhookService/RotateSecret",
    show_fields("secret"),
    about="Replace the secret of a webhook, and print the new one.",
)


@webhooks.command()
@click.argument("webhook_id")
def ping(webhook_id: str) -> None:
    """Deliver a test event, and print the outcome."""
    lookup = webhook_pb2.ListDeliveriesRequest(webhook_id=webhook_id)

    async def deliver(facade: FacadeClient) -> webhook_pb2.Delivery:
        ping = await facade.send(webhook_pb2.PingWebhookRequest(webhook_id=webhook_id))
        for _ in range(int(PING_S / LOOK_S)):
            page: webhook_pb2.ListDeliveriesResponse = await facade.send(lookup)
            for delivery in page.deliveries:
                is_over = delivery.state != "waiting" or delivery.failure
                if delivery.event_id == ping.delivery.event_id and is_over:
                    return delivery
            await asyncio.sleep(LOOK_S)
        raise click.ClickException("no outcome yet; see headrace webhooks deliveries")

    delivery = make_request(deliver)
    if delivery.state != "delivered":
        raise click.ClickException(delivery.failure)
    click.echo(f"delivered, answered with {delivery.status}")


add_command(
    webhooks,
    "deliveries",
    "WebhookService/ListDeliveries",
    list_rows("occurred_at", "state", "event_id", "type", "subject", "tries", "status", "failure"),
    click.Option(
        ["--limit", "--count", "page_size"],
        type=click.IntRange(1, 200),
        help="Maximum number of items, 1 to 200. Default: 50.",
    ),
)
add_command(
    webhooks,
    "replay",
    "WebhookService/ReplayDeliveries",
    Show(lambda response: click.echo(f"{response.count} on their way")),
    about="Deliver events again; without ids, all dead letters.",
    arguments="webhook_id [event_ids]",
)
add_command(webhooks, "delete", "WebhookService/DeleteWebhook", is_for_each=True)
