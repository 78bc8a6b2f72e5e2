"""One gate of each kind."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from headrace.v1 import common_pb2, tools_pb2
from services.runtime.rpc.call_ids import find_tool_credential
from tests.support.orchestrator.scripted_tools import tool
from tests.support.orchestrator.steps import call_tool
from tests.support.orchestrator.suite import Suite

LISTED = {"toolConfig": {"backends": ["act", "fetch"], "frontends": ["confirm", "ask_human"]}}
SECRET = "hunter2-of-ada"

NEED = common_pb2.CredentialNeed(
    name="github", description="A token of GitHub", obtain="https://github.com/settings/tokens"
)


async def execute(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Act as the tools service: `fetch` runs only with a credential, and `bad-one` is refused."""
    given = find_tool_credential(NEED.name)
    outcome = tools_pb2.ToolOutcome(ok=True, result=f"{request.tool_name} has run")
    if request.tool_name == "fetch" and given in ("", "bad-one"):
        outcome = tools_pb2.ToolOutcome(ok=False, result="no credential", needs=NEED)
        outcome.needs.problem = "refused" if given else "missing"
    yield tools_pb2.ToolDelta(result=outcome)


GATES: dict[str, tuple[str, dict[str, Any], str]] = {
    "approval": ("act", {"at": 1}, '{"decision": "approve"}'),
    "form": ("confirm", {"q": 1}, '{"ok": true}'),
    "question": ("ask_human", {"question": "Which?"}, '{"answer": "this"}'),
    "credential": ("fetch", {"n": 1}, f'{{"decision": "supply", "secret": "{SECRET}"}}'),
}
"""Tool, arguments and an answer, by the gate's kind."""


def offer(suite: Suite, timeout_ms: int = 100_000) -> None:
    suite.tools.tools += [
        tool("act", "backend", approval="ask"),
        tool("fetch", "backend"),
        tool("confirm", "frontend", timeout_ms=timeout_ms, viewport_key="confirm_view"),
    ]
    suite.tools.execute = execute


def asking(kind: str) -> list[Any]:
    name, arguments, _ = GATES[kind]
    return call_tool(name, json.dumps(arguments))
