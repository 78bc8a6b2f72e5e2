"""headrace facts: what is kept about a user for all chats."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_text


class Fact(msgspec.Struct, frozen=True, rename="camel"):
    """A fact as GET /api/facts has it."""

    fact_id: str
    text: str = ""
    scope: str = "user"
    agent_key: str = ""
    topic: str = ""
    updated_at: int = 0
    ended_at: int = 0

    @property
    def line(self) -> str:
        about = " ".join(filter(None, (self.scope, self.agent_key, f"[{self.topic}]" if self.topic else "")))
        ended = "  (ended)" if self.ended_at else ""
        return f"{self.fact_id}  {format_time(self.updated_at)}  {about}  {' '.join(self.text.split())}{ended}"


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    facts: tuple[Fact, ...] = ()


class _RawPage(msgspec.Struct, frozen=True, rename="camel"):
    facts: tuple[msgspec.Raw, ...] = ()
    next_page_token: str = ""


class _Hit(msgspec.Struct, frozen=True):
    fact: Fact


class _Hits(msgspec.Struct, frozen=True):
    hits: tuple[_Hit, ...] = ()


@click.group()
def facts() -> None:
    """List, search, write and delete what is kept about you for all chats."""


@facts.command("list")
@url_option
@click.option("--count", default=50, show_default=True, type=click.IntRange(1, 200), help="How many, newest first.")
@click.option("--scope", type=click.Choice(["user", "agent", "tenant", "plan"]), help="Only facts of this scope.")
@click.option("--ended", is_flag=True, help="Those too that a newer fact has ended.")
def list_facts(url: str, count: int, scope: str | None, ended: bool) -> None:
    """List facts, the newest first: id, time, scope, topic, text."""
    wanted = (
        {"pageSize": str(count)} | ({"scope": scope} if scope else {}) | ({"includeEnded": "true"} if ended else {})
    )
    data = make_request(url, lambda facade: facade.get("/api/facts", **wanted))
    for fact in msgspec.json.decode(data, type=_Page).facts:
        print_text(fact.line)


@facts.command("search")
@url_option
@click.option("--count", default=20, show_default=True, type=click.IntRange(1, 100), help="How many, the best first.")
@click.argument("query")
def search_facts(url: str, count: int, query: str) -> None:
    """Find facts that hold words of QUERY, the best first."""
    data = make_request(url, lambda facade: facade.get("/api/facts/search", query=query, limit=str(count)))
    for hit in msgspec.json.decode(data, type=_Hits).hits:
        print_text(hit.fact.line)


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
    body = {"text": text, "topic": topic, "agentKey": agent_key}
    body["scope"] = "tenant" if tenant else "agent" if agent_key else "user"
    data = make_request(url, lambda facade: facade.post("/api/facts", body))
    click.echo(msgspec.json.decode(data, type=Fact).fact_id)


@facts.command()
@url_option
@click.option("--text", help="The new text.")
@click.option("--topic", help="The new topic; empty for none.")
@click.argument("fact_id")
def edit(url: str, text: str | None, topic: str | None, fact_id: str) -> None:
    """Change the fact FACT_ID; the text that it had is deleted."""
    if text is None and topic is None:
        raise click.UsageError("give --text or --topic")
    given = {"text": text, "topic": topic}
    body: dict[str, Any] = {"factId": fact_id} | {name: value for name, value in given.items() if value is not None}
    make_request(url, lambda facade: facade.post("/api/fact", body))


@facts.command()
@url_option
@click.argument("fact_ids", nargs=-1, required=True)
def delete(url: str, fact_ids: tuple[str, ...]) -> None:
    """Delete facts for good; chats in which they were said keep their logs."""

    async def delete_all(facade: FacadeClient) -> None:
        for fact_id in fact_ids:
            await facade.delete("/api/fact", factId=fact_id)

    make_request(url, delete_all)


@facts.command()
@url_option
def export(url: str) -> None:
    """Write all that you have stored as JSON lines, ended facts and what is left of deleted ones too."""

    async def print_all(facade: FacadeClient) -> None:
        token = ""
        while True:
            where = {"pageToken": token} if token else {}
            page = msgspec.json.decode(await facade.get("/api/facts/export", **where), type=_RawPage)
            for fact in page.facts:
                click.echo(json.dumps(json.loads(bytes(fact)), ensure_ascii=False))
            token = page.next_page_token
            if not token:
                return

    make_request(url, print_all)
