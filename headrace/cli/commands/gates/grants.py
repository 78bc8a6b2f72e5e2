"""headrace gates grants and revoke: approvals that hold for later calls."""

from __future__ import annotations

import json

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_shown


class _Grant(msgspec.Struct, frozen=True, rename="camel"):
    grant_id: str
    chat_id: str
    run_id: str
    scope: str
    tool_name: str
    risk: str
    requester: str
    made_at: int
    grounds: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()
    expires_at: int = 0

    @property
    def line(self) -> str:
        end = f"until {format_time(self.expires_at)}" if self.expires_at else f"while run {self.run_id} goes on"
        what = f"{self.tool_name} of {self.requester}, {self.risk} risk: {'; '.join(self.grounds)}"
        return f"{self.chat_id}  {self.grant_id}  {what}; by {', '.join(self.made_by)}, {end}"


@click.command()
@url_option
@click.option("--chat", "chat_id", help="Only those of this chat.")
@click.option("--tenant", "is_tenant", is_flag=True, help="All of the tenant (a credential with the scope operate).")
@click.option("--count", default=50, show_default=True, type=click.IntRange(1, 200), help="How many, the oldest first.")
def grants(url: str, chat_id: str | None, is_tenant: bool, count: int) -> None:
    """List the approvals in force that hold for later calls, those you have made and those of your chats: chat, grant,
    what it covers, by whom, how long."""
    given = {"chatId": chat_id, "scope": "tenant" if is_tenant else None}
    wanted = {"pageSize": str(count)} | {name: value for name, value in given.items() if value}
    data = make_request(url, lambda facade: facade.get("/api/grants", **wanted))
    found = msgspec.json.decode(data, type=list[_Grant])
    for grant in found:
        print_shown(grant.line)
    if len(found) == count:
        click.echo(f"{count} are shown; --count shows more", err=True)


@click.command()
@url_option
@click.argument("chat_id")
@click.argument("grant_id")
def revoke(url: str, chat_id: str, grant_id: str) -> None:
    """End the grant GRANT_ID of the chat CHAT_ID: calls that it covered are asked about again."""
    body = {"chatId": chat_id, "grantId": grant_id}
    data = make_request(url, lambda facade: facade.post("/api/grant/revoke", body))
    status = json.loads(bytes(data))["status"]
    click.echo("revoked" if status == "revoked" else "it was over already")
