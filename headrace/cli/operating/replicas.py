"""headrace replicas: who runs what."""

from __future__ import annotations

from headrace.cli.rpc_commands import add_command, list_rows
from headrace.v1 import operator_pb2


def _describe_state(replica: operator_pb2.Replica) -> str:
    return "answers" if replica.is_this else "alive" if replica.is_alive else "leases expired"


replicas = add_command(
    None,
    "replicas",
    "OperatorService/ListReplicas",
    list_rows("address", ("state", _describe_state), "runs", "lease_expires_at:lease until"),
)
