"""headrace authorizations: where you have let Headrace act for you, and where to take that back."""

from __future__ import annotations

import click

from headrace.cli.rpc_commands import add_command, list_rows
from headrace.v1 import tools_pb2


def _show_revoked(response: tools_pb2.RevokeAuthorizationResponse) -> None:
    forgotten = "; the authorization server has not said that it forgets the tokens"
    click.echo("revoked" if response.revoked_at_issuer else f"revoked here{forgotten}")


authorizations = click.Group(
    "authorizations", help="List the MCP servers that Headrace may use for you, and take that back."
)

add_command(
    authorizations,
    "list",
    "ToolService/ListAuthorizations",
    list_rows("server", "authorized_at", "issuer", "expires_at", "renewable", "in_use"),
)
add_command(authorizations, "revoke", "ToolService/RevokeAuthorization", _show_revoked)
