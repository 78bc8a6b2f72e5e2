"""headrace gates grants and revoke: approvals that hold for later calls."""

from __future__ import annotations

import click

from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.answers import Show, list_rows

grants = add_command(
    None,
    "grants",
    "GateService/ListGrants",
    list_rows(
        *("chat_id", "grant_id", "tool_name:tool", "requester", "risk", "grounds", "made_by:by", "scope", "expires_at"),
    ),
    make_flag("--tenant", "scope", "tenant", "List all grants of the tenant; needs the scope operate."),
)

revoke = add_command(
    None,
    "revoke",
    "GateService/RevokeGrant",
    Show(lambda response: click.echo("revoked" if response.status == "revoked" else "it was over already")),
)
