"""headrace facts: list, search and change the facts kept about a user."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.facade.client import FacadeClient, make_request, send_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.answers import list_rows, print_json
from headrace.v1 import memory_pb2

facts = CommandGroup("facts", help="List, search, write and delete facts kept for all chats.")

add_command(
    facts,
    "list",
    "MemoryService/ListFacts",
    list_rows("fact_id:id", "updated_at", "scope", "agent_key", "topic", "text", "ended_at"),
    make_flag("--ended", "include_ended", True, "Include facts that a newer fact has replaced."),
)
add_command(
    facts,
    "search",
    "MemoryService/RecallFacts",
    list_rows("fact.fact_id:id", "fact.updated_at", "fact.scope", "fact.agent_key", "fact.topic", "fact.text"),
)


@facts.command()
@click.option("--topic", default="", help="Topic of the fact; it replaces an older fact of this topic.")
@click.option("--agent", "agent_key", default="", help="Keep it for this agent only.")
@click.option("--tenant", is_flag=True, help="Keep it for all users of the tenant, if the operator allows that.")
@click.argument("text")
def remember(topic: str, agent_key: str, tenant: bool, text: str) -> None:
    """Keep a fact for all chats, and print its id."""
    if agent_key and tenant:
        raise click.UsageError("--agent and --tenant exclude each other")
    scope = "tenant" if tenant else "agent" if agent_key else "user"
    request = memory_pb2.RememberRequest(text=text, topic=topic, agent_key=agent_key, scope=scope)
    click.echo(send_request(request).fact.fact_id)


@facts.command()
@click.option("--text", help="New text.")
@click.option("--topic", help="New topic; an empty one removes it.")
@click.argument("fact_id")
def edit(**fields: Any) -> None:
    """Change a fact; its previous text is deleted."""
    if fields["text"] is None and fields["topic"] is None:
        raise click.UsageError("give --text or --topic")
    send_request(memory_pb2.UpdateFactRequest(**fields))


add_command(facts, "delete", "MemoryService/DeleteFact", is_for_each=True)


@facts.command()
def export() -> None:
    """Export all of your facts as JSON lines.

    Includes replaced facts, and the remains of deleted ones.
    """

    async def print_all(facade: FacadeClient) -> None:
        request = memory_pb2.ExportFactsRequest()
        while True:
            page = await facade.fetch(request)
            print_json(*page.data.get("facts", ()))
            request.page_token = page.message.next_page_token
            if not request.page_token:
                return

    make_request(print_all)
