"""headrace authorizations: where you have let Headrace act for you, and where to take that back."""

from __future__ import annotations

import json

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_text


class _Authorization(msgspec.Struct, frozen=True, rename="camel"):
    server: str
    issuer: str
    authorized_at: int
    expires_at: int = 0
    renewable: bool = False
    in_use: bool = False

    @property
    def line(self) -> str:
        end = f", until {format_time(self.expires_at)}" if self.expires_at and not self.renewable else ""
        unused = "" if self.in_use else "  (not in use)"
        return f"{self.server}  {format_time(self.authorized_at)}  by {self.issuer}{end}{unused}"


@click.group()
def authorizations() -> None:
    """List the MCP servers that Headrace may use for you, and take that back."""


@authorizations.command("list")
@url_option
def list_authorizations(url: str) -> None:
    """List your authorizations: MCP server, since when, by which authorization server."""
    data = make_request(url, lambda facade: facade.get("/api/mcp/authorizations"))
    for one in msgspec.json.decode(data, type=list[_Authorization]):
        print_text(one.line)


@authorizations.command()
@url_option
@click.argument("server")
def revoke(url: str, server: str) -> None:
    """Take your authorization of the MCP server SERVER back: its tokens are forgotten, and calls ask you again."""
    data = make_request(url, lambda facade: facade.delete("/api/mcp/authorization", server=server))
    is_told = json.loads(bytes(data)).get("revokedAtIssuer", False)
    click.echo(
        "revoked" if is_told else "revoked here; the authorization server has not said that it forgets the tokens"
    )
