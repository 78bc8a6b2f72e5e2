"""headrace tools: list the tools that agents may call, and why some cannot be used."""

from __future__ import annotations

from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.answers import list_rows

tools = add_command(
    None,
    "tools",
    "ToolService/ListTools",
    list_rows("name:tool", "tier", "effect", "unavailable:cannot be used"),
    hidden="names common_only",
)
