"""Users' credentials for tools, which come with a call's metadata: their keys, and the calls that they go on to.

`x-mcp-<server>-authorization` is the user's Authorization header for that server, `x-tool-<name>-credential` a
credential of tools.yaml; neither is ever logged.
"""

from __future__ import annotations

import re

_KEY = re.compile(r"x-mcp-[a-z0-9_-]{1,32}-authorization|x-tool-[a-z0-9_-]{1,32}-credential")

_TAKE_THEM = ("/headrace.v1.AgentService/", "/headrace.v1.GateService/", "/headrace.v1.ToolService/Execute")
"""A run keeps them for its calls, and the execution of a tool shows them to its server."""


def is_credential(key: str) -> bool:
    return _KEY.fullmatch(key) is not None


def takes_credentials(method: str) -> bool:
    """Say whether the method, by its path, needs users' credentials."""
    return method.startswith(_TAKE_THEM)
