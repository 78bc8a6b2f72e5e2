"""Credentials of the user who asks, which come with a call and are kept nowhere here."""

from __future__ import annotations

from headrace.v1 import common_pb2, tools_pb2
from services.runtime.rpc.call_ids import find_mcp_credential, find_tool_credential
from services.tools.toolkit.credential import Credential
from services.tools.toolkit.tool import Tool


def find_missing(tool: Tool) -> Credential | None:
    """Return the first credential that the call needs and does not have."""
    return next((one for one in tool.credentials if not _is_there(tool, one)), None)


def _is_there(tool: Tool, credential: Credential) -> bool:
    own = tool.server and find_mcp_credential(tool.server)
    return bool(own or find_tool_credential(credential.name))


def make_environment(credentials: tuple[Credential, ...]) -> tuple[tuple[str, str], ...]:
    """Return the variables of a command that has the credentials."""
    return tuple((one.variable, find_tool_credential(one.name)) for one in credentials if one.variable)


def find_authorization(server: str, credentials: tuple[Credential, ...]) -> str:
    """Return the user's Authorization header for an MCP server; empty: the user has none."""
    for one in credentials:
        if value := find_tool_credential(one.name):
            return f"{one.scheme} {value}".strip()
    return find_mcp_credential(server)


def make_need_result(need: common_pb2.CredentialNeed) -> tools_pb2.ToolDelta:
    text = f"credential {need.name!r} is {need.problem}"
    return tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result=text, needs=need))
