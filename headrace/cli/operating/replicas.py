"""headrace replicas: list the replicas of the orchestrator and their runs."""

from __future__ import annotations

from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.answers import list_rows

replicas = add_command(
    None,
    "replicas",
    "OperatorService/ListReplicas",
    list_rows(
        "address",
        ("state", lambda one: "answers" if one.is_this else "alive" if one.is_alive else "leases expired"),
        *("runs", "lease_expires_at"),
    ),
)
