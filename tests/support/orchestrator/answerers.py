"""Gates that only some people of a tenant may answer."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from headrace.client import Client
from tests.support.local_client import open_client
from tests.support.orchestrator.scripted_tools import tool
from tests.support.orchestrator.steps import call_tool
from tests.support.orchestrator.suite import Suite

LISTED = {"toolConfig": {"backends": ["act"], "frontends": ["confirm"]}}
APPROVE = '{"decision": "approve"}'

KEYS = {
    "ada": "acme/ada board",
    "bob": "acme/bob finance",
    "cleo": "acme/cleo",
    "operator": "acme/olga ops answer,operate",
    "auditor": "acme/otto ops operate,read_content",
    "reader": "acme/rita finance ask",
    "stranger": "globex/bob finance",
}
"""Users by key; each key is the name of its holder. ada starts the runs."""

SILENT, DENIED, ACCEPTED = "NOT_FOUND", "PERMISSION_DENIED", "accepted"


def offer(suite: Suite, rule: dict[str, Any], kind: str = "approval") -> None:
    answerers = rule or None
    suite.tools.tools += [
        tool("act", "backend", approval="ask", answerers=answerers),
        tool("confirm", "frontend", timeout_ms=100_000, viewport_key="view", answerers=answerers),
    ]


def asking(kind: str) -> list[Any]:
    return call_tool("act" if kind == "approval" else "confirm", '{"at": 1}')


def as_user(address: str, name: str) -> AbstractAsyncContextManager[Client]:
    return open_client(address, token=name)


def as_member(suite: Suite, address: str, name: str) -> AbstractAsyncContextManager[Client]:
    """Like `as_user`, but the client also calls memory."""
    return open_client(address, memory_address=suite.config.memory_address, token=name)


FINANCE = {"any_of": ["role:finance"], "not_requester": True}
