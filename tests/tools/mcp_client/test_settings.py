"""mcp.json, valid and invalid; the names of a server's tools; the lifetime of a user's session."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
import structlog
from mcp_types import ToolAnnotations

from services.runtime.auth.identity import Identity, acting_as
from services.tools.mcp_client import user_sessions
from services.tools.mcp_client.offered_tools import map_tools
from services.tools.mcp_client.sdk_errors import ServerFailed
from services.tools.mcp_client.session import McpSession
from services.tools.mcp_client.settings import BadMcpFile, Http, Stdio, read_servers
from services.tools.mcp_client.user_sessions import UserSessions
from services.tools.toolkit.tool import Effect, Execute, ToolContext

ENV = {"TOKEN": "Bearer x\n", "KEY": "x\n"}


def read(folder: Path, servers: Any) -> Any:
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return read_servers(folder / "mcp.json", ENV)


def test_without_a_file_there_are_no_servers(tmp_path: Path) -> None:
    assert read_servers(tmp_path / "mcp.json", ENV).servers == {}


def test_both_kinds_of_servers_take_values_from_the_environment(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "files": {"command": "x", "args": ["a"], "env": {"T": "env:TOKEN", "M": "env"}, "cwd": "sub"},
            "web": {"type": "streamable-http", "url": "https://x.org/mcp", "headers": {"Authorization": "env:TOKEN"}},
        },
    )
    assert found.problems == {}
    assert found.servers == {
        "files": Stdio(command="x", args=("a",), env={"T": "Bearer x\n", "M": "env"}, cwd=str(tmp_path / "sub")),
        "web": Http(type="streamable-http", url="https://x.org/mcp", headers={"Authorization": "Bearer x"}),
    }


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        ("Bearer env:KEY", "Bearer x"),
        ("${TOKEN}", "Bearer x"),
        ("Bearer ${KEY}", "Bearer x"),
        ("Bearer ${env:KEY}", "Bearer x"),
        ("env", "env"),
        ("the env:KEY of them", "the env:KEY of them"),
    ],
)
def test_a_header_has_a_variable_as_tools_files_and_other_clients_write_it(
    tmp_path: Path, stated: str, value: str
) -> None:
    found = read(tmp_path, {"web": {"url": "https://x.org/mcp", "headers": {"Authorization": stated}}})
    assert found.servers["web"].headers == {"Authorization": value}


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamable_http", "streamableHttp"])
def test_the_transport_has_the_names_of_other_clients(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path, {"web": {"url": "https://x.org/mcp", "type": kind}}).problems == {}


UNKNOWN = "unknown, or not supported by this version"


@pytest.mark.parametrize(
    ("name", "stated", "problem"),
    [
        ("a b", {"command": "x"}, "a server's name has"),
        ("a" * 33, {"command": "x"}, "a server's name has"),
        ("a", {}, "either command or url"),
        ("a", 7, "either command or url"),
        ("a", {"command": "x", "url": "https://x"}, "either command or url"),
        ("a", {"command": ""}, "command: "),
        ("a", {"command": "x", "arguments": []}, "arguments: unknown, or not supported by this version"),
        ("a", {"command": "x", "arg": []}, f"arg: {UNKNOWN}; did you mean 'args'?"),
        ("a", {"url": "https://x", "roots": [{"url": "x"}]}, f"roots.0.url: {UNKNOWN}; did you mean 'uri'?"),
        ("a", {"command": "x", "env": {"T": "env:MISSING"}}, "env.T: MISSING is not set"),
        ("a", {"url": "https://x", "headers": {"A": "Bearer ${MISSING}"}}, "headers.A: MISSING is not set"),
        ("a", {"url": "ftp://x"}, "url: "),
        ("a", {"url": "https://user:secret@x"}, "url: "),
        ("a", {"url": "https://x", "type": "sse"}, "type: "),
        ("a", {"url": "https://x", "headers": {"A": 1}}, "headers.A: "),
        ("a", {"url": "https://x", "roots": [{"uri": "/home/me"}]}, "roots.0.uri: "),
        ("a", {"url": "https://x", "sampling": {"maxTokens": 0}}, "sampling.maxTokens: "),
        ("a", {"command": "x", "sampling": True}, "sampling: "),
    ],
)
def test_a_bad_server_is_named_with_its_problem_and_others_stay_active(
    tmp_path: Path, name: str, stated: Any, problem: str
) -> None:
    found = read(tmp_path, {name: stated, "good": {"command": "x"}})
    assert list(found.servers) == ["good"]
    assert problem in found.problems[name]
    assert "secret" not in found.problems[name]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"mcpServers": []}', "[" * 100_000, '"\xff'])
def test_a_bad_file_is_refused_as_a_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / "mcp.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadMcpFile, match=r"."):
        read_servers(tmp_path / "mcp.json", ENV)


GRANTED = Stdio(command="x")


def never(tool: str, effect: Effect) -> Execute:
    async def execute(context: ToolContext) -> AsyncGenerator[Any]:
        raise AssertionError(tool)
        yield

    return execute


def tool(name: str, schema: Any = None, **more: Any) -> mcp.Tool:
    return mcp.Tool(name=name, input_schema={"type": "object"} if schema is None else schema, **more)


def test_tool_names_are_valid_for_models_and_unique() -> None:
    given = ["read", "read.file", "Same", "same", "a b", "a/b", "x" * 100, "x" * 101, "名"]
    names = [mapped.name for mapped in map_tools("files", [tool(name) for name in given], {}, GRANTED, never)]
    assert names[:2] == ["files__read", "files__read_file"]
    assert names[-1] == "files___"
    assert len({name.casefold() for name in names}) == len(given)
    assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in names[:-1])
    assert names == [mapped.name for mapped in map_tools("files", [tool(name) for name in given], {}, GRANTED, never)]


def test_annotation_hints_decide_the_effect() -> None:
    hints = {
        "read": ToolAnnotations(read_only_hint=True, idempotent_hint=False),
        "idempotent": ToolAnnotations(idempotent_hint=True),
        "once": ToolAnnotations(read_only_hint=False),
        "none": None,
    }
    found = map_tools("s", [tool(name, annotations=hint) for name, hint in hints.items()], {}, GRANTED, never)
    assert [mapped.effect for mapped in found] == ["read", "idempotent", "once", "once"]


def test_a_description_that_is_too_long_ends_with_a_note() -> None:
    described = [tool("whole", description="é" * 4_000), tool("cut", description="é" * 4_001)]
    whole, cut = [each.description for each in map_tools("s", described, {}, GRANTED, never)]
    assert whole == "é" * 4_000
    assert cut == "é" * 4_000 + "\n[… cut here: 4001 characters in all …]"


DEEP = json.loads('{"type": "object", "not": ' + '{"not": ' * 70 + "{}" + "}" * 71)


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, DEEP])
def test_a_tool_with_an_unusable_schema_reports_why(schema: Any) -> None:
    with structlog.testing.capture_logs() as logged:
        found = map_tools("s", [tool("bad", schema), tool("good")], {}, GRANTED, never)
    assert [(mapped.name, "inputSchema" in mapped.unavailable) for mapped in found] == [
        ("s__bad", True),
        ("s__good", False),
    ]
    assert (logged[0]["tool"], "inputSchema" in logged[0]["problem"]) == ("s__bad", True)


class Opening:
    """Opens empty sessions and tracks which are open."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.open: set[str] = set()

    @asynccontextmanager
    async def session(self, authorization: str) -> AsyncGenerator[McpSession]:
        if authorization == "refused":
            raise ServerFailed("no")
        self.opened.append(authorization)
        self.open.add(authorization)
        try:
            yield McpSession()
        finally:
            self.open.remove(authorization)


class _Over(Exception):
    """Raised to end a task group and all its tasks."""


@asynccontextmanager
async def sessions(opening: Opening) -> AsyncGenerator[UserSessions]:
    try:
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            yield UserSessions(group, opening.session)
            raise _Over
    except* _Over:
        pass
    assert opening.open == set()


async def test_each_credential_has_one_session_that_is_reused() -> None:
    opening = Opening()
    async with sessions(opening) as users:
        async with (
            users.borrow_session("ann") as first,
            users.borrow_session("ann") as second,
            users.borrow_session("bob") as other,
        ):
            assert first is second
            assert other is not first
        async with users.borrow_session("ann") as again:
            assert again is first
    assert opening.opened == ["ann", "bob"]


async def test_the_least_recently_used_idle_session_is_replaced() -> None:
    opening = Opening()
    async with sessions(opening) as users, AsyncExitStack() as stack:
        for number in range(user_sessions.SESSIONS_MAX):
            with acting_as(Identity(f"tenant{number}", "user")):
                await stack.enter_async_context(users.borrow_session(f"user {number}"))
        with pytest.raises(ServerFailed, match="try again later"):
            await stack.enter_async_context(users.borrow_session("one more"))
        await stack.aclose()
        async with users.borrow_session("one more"):
            await asyncio.sleep(0)
            assert "user 0" not in opening.open
            assert len(opening.open) == user_sessions.SESSIONS_MAX


async def test_a_tenant_cannot_use_all_sessions() -> None:
    opening = Opening()
    async with sessions(opening) as users, AsyncExitStack() as stack:
        with acting_as(Identity("mill", "ann")):
            for number in range(user_sessions.SESSIONS_MAX):  # one after the other, so that all are kept
                async with users.borrow_session(f"user {number}"):
                    pass
            for number in range(user_sessions.SESSIONS_MAX // 2):
                await stack.enter_async_context(users.borrow_session(f"user {number}"))
            with pytest.raises(ServerFailed, match="try again later"):
                await stack.enter_async_context(users.borrow_session("user 63"))
        with acting_as(Identity("farm", "bob")):
            await stack.enter_async_context(users.borrow_session("bob"))


async def test_a_failed_or_ended_session_is_reopened() -> None:
    opening = Opening()
    async with sessions(opening) as users:
        for _ in range(2):
            with pytest.raises(ServerFailed, match="no"):
                async with users.borrow_session("refused"):
                    pass
        async with users.borrow_session("ann") as session:
            session.end()
        async with users.borrow_session("ann") as again:
            assert again is not session
