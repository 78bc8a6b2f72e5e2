"""headrace authorizations: list and revoke your authorizations of MCP servers."""

from __future__ import annotations

import click

from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.answers import Show, list_rows

REVOKED_HERE = "revoked here; the authorization server has not said that it forgets the tokens"

authorizations = CommandGroup("authorizations", help="List and revoke your authorizations of MCP servers.")

add_command(
    authorizations,
    "list",
    "ToolService/ListAuthorizations",
    list_rows("server", "authorized_at", "issuer", "expires_at", "renewable", "in_use"),
)
add_command(
    authorizations,
    "revoke",
    "ToolService/RevokeAuthorization",
    Show(lambda response: click.echo("revoked" if response.revoked_at_issuer else REVOKED_HERE)),
)
