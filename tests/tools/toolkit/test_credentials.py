"""User credentials: requested if missing, passed to commands and MCP servers, and shown nowhere."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.streams import reading
from headrace.v1 import tools_pb2
from services.runtime.rpc.call_ids import name_tool_credential
from services.tools.execution.results import mask_deltas
from services.tools.toolkit.tool import make_output, make_result
from tests.support.orchestrator.files import find_text
from tests.support.tools.mcp_http import http_server
from tests.support.tools.mcp_suite import Suite as McpSuite
from tests.support.tools.suite import CHAT, RUN, Serve, Suite

SECRET = 'hunter2-"of"-ada'
PROGRAM = """
import os, sys
print("begun with", os.environ["GITHUB_TOKEN"])
sys.exit(77 if os.environ["GITHUB_TOKEN"].startswith("bad") else 0)
"""
DECLARED = {"description": "A token of GitHub", "obtain": "https://github.com/settings/tokens"}


async def execute(suite: Suite, name: str, secret: str = "", effect_key: str = "") -> tuple[str, tools_pb2.ToolOutcome]:
    """Execute a tool; return its output and its outcome."""
    request = tools_pb2.ExecuteRequest(
        run_id=RUN, tool_call_id="call_1", tool_name=name, arguments="{}", chat_id=CHAT, effect_key=effect_key
    )
    metadata = ((name_tool_credential("github"), secret),) if secret else ()
    output, outcome = "", tools_pb2.ToolOutcome()
    async with reading(suite.stub.Execute(request, metadata=metadata)) as deltas:
        async for delta in deltas:
            output += delta.output.delta
            if delta.HasField("result"):
                outcome = delta.result
    return output, outcome


def declare(folder: Path, **users: Any) -> None:
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "issues.py").write_text(PROGRAM)
    definition = {"name": "issues", "description": "Reads issues", "command": ["python3", "issues.py"]}
    (folder / "tools" / "issues.backend").write_text(json.dumps({"tools": [definition]}))
    (folder / "tools.yaml").write_text(yaml.safe_dump({"credentials": {"github": DECLARED | users}}))


async def test_a_command_runs_only_with_its_credential_and_output_masks_it(serve: Serve, tmp_path: Path) -> None:
    rule = {"anyOf": ["role:lead"]}
    declare(tmp_path, tools={"issues": "GITHUB_TOKEN"}, answerers=rule)
    async with serve() as suite:
        output, missing = await execute(suite, "issues", effect_key="k")
        refused_output, refused = await execute(suite, "issues", "bad-hunter2", effect_key="k")
        masked_output, ran = await execute(suite, "issues", SECRET, effect_key="k")
        _, repeated = await execute(suite, "issues", SECRET, effect_key="k")
    need = missing.needs
    assert (output, missing.ok, need.name, need.problem) == ("", False, "github", "missing")
    assert (need.description, need.obtain) == (DECLARED["description"], DECLARED["obtain"])
    assert list(need.answerers.any_of) == ["role:lead"]
    assert (refused.needs.problem, refused_output) == ("refused", "begun with ***\n"), "and it may be run again"
    assert (ran.ok, ran.HasField("needs"), masked_output, ran.result) == (
        True,
        False,
        "begun with ***\n",
        "begun with ***\n",
    )
    assert repeated.result == ran.result
    assert find_text(tmp_path, "hunter2") == []


async def test_an_mcp_server_receives_the_credential_and_can_refuse_it_with_401(serve: Serve, tmp_path: Path) -> None:
    declare(tmp_path, servers=["s"])
    async with http_server() as http:
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"s": {"url": http.url}}}))
        http.refused = "Bearer bad-hunter2"
        async with serve(lasting=True) as suite:
            # Connecting may take any time, since the test's clock may jump meanwhile.
            await McpSuite(suite.stub, tmp_path).until("s__whoami")
            _, missing = await execute(suite, "s__whoami")
            _, refused = await execute(suite, "s__whoami", "bad-hunter2")
            _, ran = await execute(suite, "s__whoami", "hunter2-of-ada")
    assert (missing.needs.name, missing.needs.problem) == ("github", "missing")
    assert (refused.needs.name, refused.needs.problem) == ("github", "refused")
    assert (ran.ok, ran.result) == (True, "Bearer ***")


@pytest.mark.parametrize(
    "users",
    [
        {},
        {"tools": {"issues": "PATH"}},
        {"tools": {"issues": "LD_PRELOAD"}},
        {"servers": ["s"], "answerers": {"count": 2}},
    ],
)
async def test_an_invalid_credential_declaration_leaves_the_tools_unchanged(
    users: dict[str, Any], serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(tmp_path, **users)
    async with serve() as suite:
        _, outcome = await execute(suite, "issues")
    assert not outcome.HasField("needs")


@pytest.mark.parametrize("value", ["", "a"])
async def test_a_too_short_secret_is_not_masked(serve: Serve, value: str) -> None:
    async with serve() as suite:
        request = tools_pb2.ExecuteRequest(
            run_id=RUN, tool_call_id="call_1", tool_name="read_file", arguments='{"path": "uploads/none"}', chat_id=CHAT
        )
        async with reading(suite.stub.Execute(request, metadata=((name_tool_credential("x"), value),))) as deltas:
            message = [delta.result.result async for delta in deltas][-1]
    assert message == "'uploads/none': No such file or directory"


@pytest.mark.parametrize("size", range(1, 20))
async def test_a_credential_split_across_deltas_is_masked(size: int) -> None:
    text = f"a {SECRET} b {json.dumps(SECRET)} hunter hunter2-"

    async def play() -> AsyncGenerator[tools_pb2.ToolDelta]:
        for at in range(0, len(text), size):
            yield make_output("stdout", text[at : at + size])
        yield make_result(text)

    deltas = [delta async for delta in mask_deltas(play(), [SECRET])]
    expected = 'a *** b "***" hunter hunter2-'
    assert "".join(delta.output.delta for delta in deltas) == deltas[-1].result.result == expected
