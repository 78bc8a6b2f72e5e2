"""headrace facts: what is kept about a user for all chats."""

from __future__ import annotations

import json
from typing import Any

import click

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option
from headrace.cli.rpc_commands import add_command, list_rows, make_flag
from headrace.v1 import memory_pb2

facts = click.Group("facts", help="List, search, write and delete what is kept about you for all chats.")

add_command(
    facts,
    "list",
    "MemoryService/ListFacts",
    list_rows("fact_id:id", "updated_at", "scope", "agent_key", "topic", "text", "ended_at"),
    make_flag("--ended", "include_ended", True, "Those too that a newer fact has ended."),
)
add_command(
    facts,
    "search",
    "MemoryService/RecallFacts",
    list_rows("fact.fact_id:id", "fact.updated_at", "fact.scope", "fact.agent_key", "fact.topic", "fact.text"),
)


@facts.command()
@url_option
@click.option("--topic", default="", help="What it is about; it ends an older fact of this topic.")
@click.option("--agent", "agent_key", default="", help="Key of the agent that it is for alone.")
@click.option("--tenant", is_flag=True, help="For all users of the tenant, where the operator allows it.")
@click.argument("text")
def remember(url: str, topic: str, agent_key: str, tenant: bool, text: str) -> None:
    """Keep TEXT for all chats, and print its id."""
    if agent_key and tenant:
        raise click.UsageError("--agent and --tenant exclude each other")
    scope = "tenant" if tenant else "agent" if agent_key else "user"
    request = memory_pb2.RememberRequest(text=text, topic=topic, agent_key=agent_key, scope=scope)
    click.echo(make_request(url, lambda facade: facade.send(request)).fact.fact_id)


@facts.command()
@url_option
@click.option("--text", help="The new text.")
@click.option("--topic", help="The new topic; empty for none.")
@click.argument("fact_id")
def edit(url: str, **fields: Any) -> None:
    """Change the fact FACT_ID; the text that it had is deleted."""
    if fields["text"] is None and fields["topic"] is None:
        raise click.UsageError("give --text or --topic")
    make_request(url, lambda facade: facade.send(memory_pb2.UpdateFactRequest(**fields)))


add_command(facts, "delete", "MemoryService/DeleteFact", is_for_each=True)


@facts.command()
@url_option
def export(url: str) -> None:
    """Write all that you have stored as JSON lines, ended facts and what is left of deleted ones too."""

    async def print_all(facade: FacadeClient) -> None:
        request = memory_pb2.ExportFactsRequest()
        while True:
            page = await facade.fetch_data(request)
            for fact in page.get("facts", ()):
                click.echo(json.dumps(fact, ensure_ascii=False))
            request.page_token = page.get("nextPageToken", "")
            if not request.page_token:
                return

    make_request(url, print_all)
