"""MCP servers, real ones over both transports, as the callers of the tools service see them."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import structlog
from mcp.server.lowlevel import Server

from headrace.cli.supervisor.ports import reserve_port
from headrace.streams import reading
from headrace.v1 import tools_pb2_grpc
from services.runtime.rpc.channels import open_channel
from services.tools.mcp_client.http import LINE_CHARS_MAX, JsonDecoder
from services.tools.mcp_client.server import TOOLS_MAX
from services.tools.mcp_client.session import STDERR_CHARS_MAX
from tests.support.programs import run_to_end
from tests.support.timing import within
from tests.support.tools.mcp_http import PIXEL, Http, PlainApp, http_server
from tests.support.tools.mcp_suite import Suite, request, serving, serving_folder, write
from tests.support.tools.suite import CHAT

PLAIN = Path(__file__).with_name("mcp_stdio.py")
EXAMPLES = Path(__file__).parents[3] / "examples"
ALWAYS = ("environment", "daemon", "grow", "die", "hang", "stubborn", "noise")
"""The tools that the small server has."""


def plain(folder: Path, **more: Any) -> dict[str, Any]:
    """Return the mcp.json entry of these tests' small server."""
    return {"command": "python", "args": ["-I", "-S", str(PLAIN), str(folder)], **more}


async def test_the_example_server_is_listed_and_its_progress_streams(tmp_path: Path) -> None:
    async with serving_folder(EXAMPLES, data_dir=tmp_path) as suite:
        await suite.until("example__roll_dice")
        tools = await suite.tools()
        *progress, last = await suite.call("example__roll_dice", '{"rolls": 3}')
        (counted,) = await suite.call("example__count_words", '{"text": "one two"}')
        (refused,) = await suite.call("example__count_words", '{"text": 7}')
    assert {name: (tool.effect, tool.tier) for name, tool in tools.items()} == {
        "example__count_words": ("read", "enabled"),
        "example__roll_dice": ("once", "enabled"),
    }
    assert json.loads(tools["example__roll_dice"].parameters)["required"] == ["rolls"]
    assert [(delta.output.stream, delta.output.delta[:11]) for delta in progress] == [
        ("progress", f"{number}/3 rolled ") for number in (1, 2, 3)
    ]
    assert (last.result.ok, last.result.result[:7]) == (True, "3 rolls")
    assert json.loads(counted.result.result)["words"] == 2
    assert (refused.result.ok, "$.text" in refused.result.result) == (False, True)


async def test_a_server_process_gets_only_the_configured_environment(tmp_path: Path) -> None:
    entry = plain(tmp_path, env={"TOKEN": "env:SECRET", "MODE": "fast"})
    env = {"SECRET": "s3cret", "OTHER": "kept from it", "PATH": "/usr/bin", "HOME": "/nowhere"}
    async with serving(tmp_path, {"a": entry}, env) as suite:
        await suite.until("a__environment")
        given = json.loads((await suite.result("a__environment")).result)
    assert given.pop("PATH") == f"{Path(sys.executable).parent}:/usr/bin"
    given.pop("LC_CTYPE", "")  # Python's own
    assert given == {"HOME": "/nowhere", "LANG": "C.UTF-8", "TOKEN": "s3cret", "MODE": "fast"}


async def test_a_server_process_is_stopped_with_all_its_children(tmp_path: Path) -> None:
    async with serving(tmp_path, {"a": plain(tmp_path)}) as suite:
        await suite.until("a__daemon")
        pid = int((await suite.result("a__daemon")).result)
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_server_process_that_does_not_exit_is_killed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        suite = await stack.enter_async_context(serving(tmp_path, {"a": plain(tmp_path)}))
        await suite.until("a__stubborn")
        async with reading(suite.stub.Execute(request("a__stubborn"))):
            while "tools/call" not in (tmp_path / "heard").read_text():
                await asyncio.sleep(0.01)
        async with within(6):
            await stack.aclose()


@pytest.mark.real_time  # nothing tells when a process of another has gone
async def test_a_killed_service_leaves_no_server_process(tmp_path: Path) -> None:
    write(tmp_path, {"a": plain(tmp_path)})
    socket = f"unix:{tmp_path}/tools.sock"
    settings = {"TOOLS_LISTEN": socket, "DATA_DIR": str(tmp_path), "CONFIG_DIR": str(tmp_path)}
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.tools"),
        env={"PATH": "/usr/bin:/bin", **{f"HEADRACE_{name}": value for name, value in settings.items()}},
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(300), open_channel(socket) as channel:
        await channel.channel_ready()
        suite = Suite(tools_pb2_grpc.ToolServiceStub(channel), tmp_path)
        await suite.until("a__daemon")
        pid = int((await suite.result("a__daemon")).result)
        service.kill()
        await service.wait()
        while Path(f"/proc/{pid}").exists():  # noqa: ASYNC240 - nothing tells; /proc does not block
            await asyncio.sleep(0.02)


async def test_a_dead_server_is_reported_once_and_restarted(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        async with serving(tmp_path, {"a": plain(tmp_path), "b": plain(tmp_path)}) as suite:
            await suite.until("a__die")
            await suite.until("b__noise")
            died = await suite.result("a__die")
            others = await suite.result("b__noise")
            again = await suite.result("a__noise")
    assert (died.ok, died.result[:15]) == (False, "MCP server 'a':")
    assert died.result.endswith("whether it took effect is not known")
    assert others.ok
    assert (again.ok, again.result) == (True, "noisy")
    downs = [entry["server"] for entry in logged if entry["event"] == "mcp server down"]
    assert downs == ["a"]


async def test_unusable_servers_do_not_affect_others(tmp_path: Path) -> None:
    servers = {
        "missing": {"command": "there-is-no-such-program"},
        "closed": {"url": "http://127.0.0.1:9/mcp"},
        "silent": {"command": "sleep", "args": ["1014.5"]},
        "good": plain(tmp_path),
    }
    with structlog.testing.capture_logs() as logged:
        async with AsyncExitStack() as stack:
            async with within(5):
                suite = await stack.enter_async_context(serving(tmp_path, servers))
            await suite.until("good__noise")
            assert (await suite.result("good__noise")).ok
    downs = {entry["server"]: entry["problem"] for entry in logged if entry["event"] == "mcp server down"}
    assert set(downs) == {"missing", "closed"}
    assert downs["missing"] == "[Errno 2] there is no program 'there-is-no-such-program'"
    assert len([entry for entry in logged if entry["event"] == "mcp server down"]) == 2


async def test_a_server_that_cannot_start_is_logged_with_its_stderr(tmp_path: Path) -> None:
    """Without its stderr, a missing file or package looks like any closed connection."""
    program = "import os, sys; sys.stderr.write('x' * 200_000 + os.environ['A_TOKEN']); sys.exit('No module: mill')"
    servers = {
        "broken": {"command": sys.executable, "args": ["-c", program], "env": {"A_TOKEN": "wheel-and-stone"}},
        "good": plain(tmp_path),
    }
    with structlog.testing.capture_logs() as logged:
        async with serving(tmp_path, servers) as suite:
            await suite.until("good__noise")
            assert (await suite.result("good__die")).ok is False
            assert (await suite.result("good__noise")).ok
    downs = {entry["server"]: entry for entry in logged if entry["event"] == "mcp server down"}
    assert (downs["broken"]["log_level"], downs["good"]["log_level"]) == ("error", "warning")
    assert downs["broken"]["stderr"].endswith("x***No module: mill")
    assert len(downs["broken"]["stderr"]) <= STDERR_CHARS_MAX
    assert "nor this" not in repr(logged)


@pytest.mark.parametrize("tool", ["grow"])
async def test_a_changed_tool_list_takes_effect(tmp_path: Path, tool: str) -> None:
    async with http_server() as http, serving(tmp_path, {"a": plain(tmp_path), "h": {"url": http.url}}) as suite:
        for server in ("a", "h"):
            await suite.until(f"{server}__{tool}")
            assert f"{server}__grown" not in await suite.tools()
            await suite.result(f"{server}__{tool}")
            await suite.until(f"{server}__grown")
            assert (await suite.result(f"{server}__grown")).result == "grown up"


async def test_a_malformed_tool_is_named_and_the_others_are_offered(tmp_path: Path) -> None:
    server = plain(tmp_path)
    server["args"] += ["huge", "unnamed_type", "no_schema", "wrong_hints", "bare"]
    with structlog.testing.capture_logs() as logged:
        async with serving(tmp_path, {"s": server}) as suite:
            await suite.until("s__environment")
            tools = await suite.tools()
    refused = {line["tool"]: line["problem"] for line in logged if line["event"] == "mcp tool refused"}
    assert {name: problem[:45] for name, problem in refused.items()} == {
        "s__huge": "inputSchema: longer than 100,000 characters",
        "s__unnamed_type": "inputSchema.type: Input should be 'object'",
        "s__no_schema": "inputSchema: Input should be a valid dictiona",
        "s__wrong_hints": "annotations: Input should be a valid dictiona",
    }
    assert {name: tools[name].unavailable for name in refused} == {
        name: f"its MCP server 's' describes it wrongly: {problem}" for name, problem in refused.items()
    }
    assert sum(not tool.unavailable for tool in tools.values()) == 8
    assert json.loads(tools["s__bare"].parameters) == {"type": "object"}


@pytest.mark.parametrize(("paging", "lists"), [("stuck", 2), ("gap", 2), ("torn", 2), ("mark", 1), ("noise", 1)])
async def test_a_tool_list_with_a_faulty_page_is_read_as_far_as_possible(
    tmp_path: Path, paging: str, lists: int
) -> None:
    """A cursor that does not advance, an empty page, a page that is refused, a byte order mark, a tool listed twice."""
    server = plain(tmp_path)
    server["args"].append(paging)
    async with serving(tmp_path, {"a": server}) as suite:
        await suite.until("a__noise")
        assert (await suite.result("a__noise")).result == "noisy"
        tools = await suite.tools()
    assert sorted(tools) == sorted({f"a__{name}" for name in (*ALWAYS, paging)})
    assert (tmp_path / "heard").read_text().splitlines().count("tools/list") == lists


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_an_empty_cursor_continues_the_list_only_since_2026_07_28(tmp_path: Path, *, is_legacy: bool) -> None:
    cursors: list[str | None] = []

    async def list_tools(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        del context
        cursors.append(cursor := params.cursor if params else None)
        tool = types.Tool(name="first" if cursor is None else "second", input_schema={"type": "object"})
        return types.ListToolsResult(tools=[tool], next_cursor="" if cursor is None or is_legacy else None)

    app = Server("paged", on_list_tools=list_tools)
    async with (
        http_server(make_app=lambda _: app, is_legacy=is_legacy) as http,
        serving(tmp_path, {"h": {"url": http.url}}) as suite,
    ):
        await suite.until("h__first")
        tools = await suite.tools()
    assert (sorted(tools), cursors) == (
        (["h__first"], [None]) if is_legacy else (["h__first", "h__second"], [None, ""])
    )


async def test_tools_beyond_the_limit_are_reported(tmp_path: Path) -> None:
    server = plain(tmp_path)
    server["args"] += [f"tool{number}" for number in range(TOOLS_MAX)]
    with structlog.testing.capture_logs() as logged:
        async with serving(tmp_path, {"a": server}) as suite:
            await suite.until("a__noise")
            assert len(await suite.tools()) == TOOLS_MAX
    [line] = [line for line in logged if line["event"] == "mcp tools left out"]
    assert (line["server"], line["kept"], line["log_level"]) == ("a", TOOLS_MAX, "warning")


async def test_a_server_that_exits_on_discover_is_restarted_with_initialize(tmp_path: Path) -> None:
    server = plain(tmp_path)
    server["args"].append("abrupt")
    async with serving(tmp_path, {"a": server}) as suite, asyncio.timeout(20):
        await suite.until("a__noise")
        assert (await suite.result("a__noise")).result == "noisy"
    assert (tmp_path / "heard").read_text().splitlines()[:2] == ["server/discover", "initialize"]


ANSWER_IDS: dict[str, Callable[[int], Any]] = {
    "fraction": float,
    "text": str,
    "null": lambda _: None,
    "another": lambda _: 99,
}


@pytest.mark.parametrize("form", ANSWER_IDS)
async def test_an_http_response_is_matched_to_its_request_whatever_its_id(tmp_path: Path, form: str) -> None:
    async with (
        http_server(make_app=lambda _: PlainApp(ANSWER_IDS[form])) as http,
        serving(tmp_path, {"h": {"url": http.url}}) as suite,
        asyncio.timeout(20),
    ):
        await suite.until("h__plain")
        assert (await suite.result("h__plain")).result == "done"


@pytest.mark.parametrize(
    "introduction",
    [
        {"capabilities": []},
        {"capabilities": {"tools": [], "logging": None}},
        {"serverInfo": None},
        {"serverInfo": {"name": "a", "version": 1.0}},
    ],
    ids=str,
)
async def test_a_server_with_an_odd_introduction_is_used(tmp_path: Path, introduction: dict[str, Any]) -> None:
    async with (
        http_server(make_app=lambda _: PlainApp(**introduction)) as http,
        serving(tmp_path, {"h": {"url": http.url}}) as suite,
        asyncio.timeout(20),
    ):
        await suite.until("h__plain")
        assert (await suite.result("h__plain")).result == "done"


async def test_a_server_is_reached_through_the_proxy_of_the_environment(tmp_path: Path) -> None:
    servers = {"h": {"url": "http://mcp.invalid/mcp"}, "local": {"url": ""}}
    async with http_server(make_app=lambda _: PlainApp()) as proxy, http_server() as local:
        servers["local"]["url"] = local.url
        env = {"HTTP_PROXY": f"127.0.0.1:{proxy.port}", "no_proxy": "other.invalid"}
        async with serving(tmp_path, servers, env) as suite, asyncio.timeout(20):
            await suite.until("h__plain")
            assert (await suite.result("h__plain")).result == "done"
            await suite.until("local__whoami")


@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (421, "text/plain; charset=utf-8", b"Invalid Host header\nmore", "421: Invalid Host header"),
        (403, "application/json", b'{"detail": "not from here"}', '403: {"detail": "not from here"}'),
        (429, "text/html", b"<html><h1>Too many requests", "429"),
        (413, "", b"", "413"),
        (502, "text/html", b"<html><h1>Bad gateway", "502"),
    ],
)
async def test_the_status_with_which_a_server_refuses_is_told(
    tmp_path: Path, status: int, kind: str, body: bytes, said: str
) -> None:
    apps = [PlainApp(refused={method: (status, kind, body)}) for method in ("tools/call", "initialize")]
    with structlog.testing.capture_logs() as logged:
        async with AsyncExitStack() as stack:
            urls = [(await stack.enter_async_context(http_server(make_app=lambda _, app=app: app))).url for app in apps]
            servers = {name: {"url": url} for name, url in zip("hi", urls, strict=True)}
            suite = await stack.enter_async_context(serving(tmp_path, servers))
            await suite.until("h__plain")
            outcome = await suite.result("h__plain")
    [down] = [line["problem"] for line in logged if line["event"] == "mcp server down"]
    assert down == f"it answered with status {said}"
    assert outcome.result.removesuffix("; whether it took effect is not known") == f"MCP server 'h': {down}"


async def test_a_server_that_keeps_reporting_changes_is_listed_less_often(tmp_path: Path) -> None:
    server = plain(tmp_path)
    server["args"].append("storm")
    async with serving(tmp_path, {"a": server}) as suite:
        await suite.until("a__noise")
        await asyncio.sleep(3)
        assert (await suite.result("a__noise")).result == "noisy"
    assert (tmp_path / "heard").read_text().splitlines().count("tools/list") < 8


@pytest.mark.parametrize(
    ("tool", "ok", "result"),
    [
        ("limited", False, "MCP server 'a': Rate limit exceeded"),
        ("half", True, "cut \ufffd"),
        ("bytes", True, "M\ufffdller"),
        ("video", True, "[content of type 'video' left out: it breaks the protocol]\nseen"),
        ("own_types", True, '{"doi": 7}\n# One'),
        ("own_error", False, "Invalid number"),
        ("listing", True, "[1, 2]"),
        ("mismatched", True, "created ticket 4711\n[its structured content does not fit the tool's outputSchema: "),
        ("failed", False, 'no\n{"why": 7}'),
        ("told", True, '{"id": 7}'),
        ("wrapped", True, "line 1\nline 2"),
        ("wrapped_json", True, '[\n {"id": 7}]'),
        ("wrapped_block", True, "[image/png: outputs/a__wrapped_block-517eb4a6-1.png]"),
        ("deep", True, 'done\n{"id": 1}'),
        ("nulls", True, '{"id": 7}'),
        ("bare_empty", True, '{"result": []}'),
        ("bare_value", True, '{"id": 7}'),
        ("bare_text", True, "done"),
        ("bare_block", True, "done"),
        (
            "mixed",
            True,
            'one\n{"two": 2}\nthree\n[resource a://b: a://b]\n'
            "[content of type \"['text']\" left out: it breaks the protocol]",
        ),
        ("linked", True, "[resource Quarter, application/pdf: reports://q3] Revenue"),
        ("data_url", True, "[image/png: outputs/a__data_url-517eb4a6-1.png]"),
        ("blob", True, "[file:///q3.pdf] [application/pdf: outputs/a__blob-517eb4a6-1.pdf]"),
        ("float", True, "done"),
        ("untold", False, "MCP server 'a': its answer breaks the protocol"),
        ("spoken", False, "MCP server 'a': no such table"),
        ("listed", False, "MCP server 'a': its answer breaks the protocol"),
    ],
)
async def test_a_malformed_part_of_a_result_affects_only_that_part(
    tmp_path: Path, tool: str, ok: bool, result: str
) -> None:
    server = plain(tmp_path)
    server["args"].append(tool)
    async with serving(tmp_path, {"a": server}) as suite:
        await suite.until("a__environment")
        outcome = await suite.result(f"a__{tool}")
        after = await suite.result("a__noise")
        await asyncio.sleep(2)
    requests = (tmp_path / "heard").read_text().splitlines()
    assert (outcome.ok, outcome.result[: len(result)]) == (ok, result)
    assert len(outcome.result) == len(result) or "outputSchema" in result
    assert (after.result, requests.count("initialize"), requests.count("tools/list")) == ("noisy", 1, 1)


async def test_results_of_all_kinds_reach_the_model(tmp_path: Path) -> None:
    async with http_server() as http, serving(tmp_path, {"h": {"url": http.url}}) as suite:
        await suite.until("h__picture")
        artifact, picture = await suite.call("h__picture")
        structured = await suite.result("h__structured")
        failed = await suite.result("h__fail")
        long = await suite.result("h__long")
        effects = {name: tool.effect for name, tool in (await suite.tools()).items()}
    lines = picture.result.result.splitlines()
    (stored,) = (tmp_path / "workspaces" / CHAT / "outputs").glob("*.png")
    assert stored.read_bytes() == PIXEL
    assert lines == [
        "a pixel",
        f"[image/png: outputs/{stored.name}]",
        "[image/png: it is not base64]",
        "[resource more: https://example.org/more]",
    ]
    assert picture.result.shown_paths == [f"outputs/{stored.name}"]
    assert (artifact.artifact.name, artifact.artifact.size_bytes) == (stored.name, len(PIXEL))
    assert (structured.ok, json.loads(structured.result)) == (True, {"answer": 42})
    assert (failed.ok, "always fails" in failed.result) == (False, True)
    assert len(long.result) <= 30_000
    assert (effects["h__whoami"], effects["h__picture"], effects["h__fail"]) == ("read", "idempotent", "once")


async def test_a_call_ends_at_its_timeout_and_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with http_server() as http, serving(tmp_path, {"h": {"url": http.url}, "a": plain(tmp_path)}) as suite:
        await suite.until("h__wait")
        await suite.until("a__hang")
        timed_out = await suite.result("h__wait", timeout_ms=3000)
        await http.cancelled.wait()
        hung = await suite.result("a__hang", timeout_ms=3000)
        while "notifications/cancelled" not in (tmp_path / "heard").read_text():
            await asyncio.sleep(0.01)
    assert (timed_out.ok, hung.ok) == (False, False)
    assert hung.result == "ended after 3 s: its time was over; whether it took effect is not known"


async def test_cancelling_a_call_cancels_it_at_the_server(tmp_path: Path) -> None:
    async with http_server() as http, serving(tmp_path, {"h": {"url": http.url}}) as suite:
        await suite.until("h__wait")
        async with reading(suite.stub.Execute(request("h__wait"))) as deltas:
            assert (await anext(deltas)).output.delta == "1/2 waiting\n"
        async with within(0.5):
            await http.cancelled.wait()


async def test_each_users_credential_is_used_only_for_their_calls(tmp_path: Path) -> None:
    def of(user: str) -> tuple[tuple[str, str], ...]:
        return (("x-mcp-search-authorization", f"Bearer {user}"), ("x-mcp-other-authorization", "Bearer wrong"))

    entry = {"headers": {"Authorization": "env:TOKEN"}}
    with structlog.testing.capture_logs() as logged:
        async with (
            http_server() as http,
            serving(tmp_path, {"Search": {"url": http.url, **entry}}, {"TOKEN": "Bearer own"}) as suite,
        ):
            await suite.until("Search__whoami")
            users = ["ann", "bob", "ann", "eve"]
            outcomes = await asyncio.gather(*(suite.result("Search__whoami", metadata=of(user)) for user in users))
            own = await suite.result("Search__whoami")
    assert [outcome.result for outcome in outcomes] == [f"Bearer {user}" for user in users]
    assert own.result == "Bearer own"
    assert "Bearer" not in json.dumps(logged, default=repr)


async def test_an_http_server_is_used_again_after_an_outage(tmp_path: Path) -> None:
    # No other process may take the server's port during the outage.
    with structlog.testing.capture_logs() as logged, reserve_port("port", 0) as port:
        async with serving(tmp_path, {"h": {"url": Http(port).url}}) as suite:
            async with http_server(port):
                await suite.until("h__whoami")
                assert (await suite.result("h__whoami")).ok
            await suite.until("h__whoami", usable=False)
            unavailable = (await suite.tools())["h__whoami"].unavailable
            refused = await suite.result("h__whoami")
            async with http_server(port):
                await suite.until("h__whoami")
                assert (await suite.result("h__whoami")).ok
    assert "MCP server 'h' cannot be used now" in unavailable
    assert not refused.ok
    assert [entry["server"] for entry in logged if entry["event"] == "mcp server down"] in (["h"], ["h", "h"])


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_a_server_that_lost_its_sessions_gets_the_call_in_a_new_one(tmp_path: Path, is_legacy: bool) -> None:
    with structlog.testing.capture_logs() as logged, reserve_port("port", 0) as port:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(http_server(port, is_legacy=is_legacy))
            suite = await stack.enter_async_context(serving(tmp_path, {"h": {"url": first.url}}))
            await suite.until("h__whoami")
            headers = (("x-mcp-h-authorization", "Bearer ann"),)
            before = [await suite.result("h__whoami"), await suite.result("h__whoami", metadata=headers)]
            first.restart()
            after = [await suite.result("h__whoami"), await suite.result("h__whoami", metadata=headers)]
    assert [outcome.result for outcome in before] == ["nobody", "Bearer ann"]
    assert [outcome.result for outcome in after] == ["nobody", "Bearer ann"]
    assert [line["event"] for line in logged if line["event"].startswith("mcp session")] == [
        "mcp session renewed"
    ] * is_legacy


async def test_progress_extends_a_calls_timeout(tmp_path: Path) -> None:
    async with http_server() as http, serving(tmp_path, {"h": {"url": http.url}}) as suite:
        await suite.until("h__work")
        worked = await suite.result("h__work")
        timed_out = await suite.result("h__work", timeout_ms=130_000)
    assert (worked.ok, worked.result) == (True, "done after 140 s")
    assert (timed_out.ok, timed_out.result[:21]) == (False, "ended after 130 s: it")


async def test_a_changed_mcp_file_takes_effect_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        async with serving(tmp_path, {"a": plain(tmp_path)}) as suite:
            await suite.until("a__noise")
            (tmp_path / "mcp.json").write_text("{")
            while not any(entry["event"] == "mcp file refused" for entry in logged):
                await asyncio.sleep(0.02)
            assert (await suite.result("a__noise")).ok
            write(tmp_path, {"b": plain(tmp_path)})
            await suite.until("b__noise")
            await suite.until("a__noise", usable=False)
            assert not any(name.startswith("a__") for name in await suite.tools())
            write(tmp_path, {"b": {"command": "there-is-no-such-program"}})
            while await suite.tools():
                await asyncio.sleep(0.02)


LOADS = """
import json, pathlib, sys
from services.tools.mcp_client.servers import McpServers
path = pathlib.Path(sys.argv[1])
servers = McpServers(path, {}, lambda *_: None, None)
for text in ('{"mcpServers": {}}', '{"mcpServers": {"a": {"command": "true"}}}'):
    path.write_text(text)
    servers.read_file()
    print("services.tools.mcp_client.server" in sys.modules)
"""


async def test_the_sdk_is_imported_off_the_loop_and_only_if_there_is_a_server(tmp_path: Path) -> None:
    # The file is read in a thread: importing on the loop would block every stream for a third of a second.
    _, loaded, _ = await run_to_end(sys.executable, "-c", LOADS, tmp_path / "mcp.json")
    assert loaded.split() == [b"False", b"True"]


PARTS = ("a", r"\\", r"\n", r"\ud83d", r"\ude00", r"\u0041", "é", "😀")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_lone_surrogates_in_json_are_replaced_so_that_it_can_be_stored(size: int) -> None:
    for parts in product(PARTS, repeat=3):
        given = json.dumps("x")[:-1].encode() + "".join(parts).encode() + b'\xff"'
        decoder = JsonDecoder()
        text = "".join(decoder.decode(given[at : at + size]) for at in range(0, len(given), size))
        whole = "".join(parts).replace(r"\ud83d\ude00", "😀")
        for half in (r"\ud83d", r"\ude00"):
            whole = whole.replace(rf"\\{half}", "\0").replace(half, "\ufffd").replace("\0", rf"\\{half}")
        value = json.loads(text)
        value.encode()
        if r"\\" not in parts:
            assert value == json.loads(f'"x{whole}\ufffd"')


def test_json_truncated_inside_an_escape_ends_with_a_replacement() -> None:
    assert JsonDecoder().decode(rb'"\ud83d\u', final=True) == '"' + r"\ufffd"


def test_a_too_long_line_is_refused() -> None:
    decoder = JsonDecoder()
    decoder.decode(b"x" * LINE_CHARS_MAX + b"\n" + b"x" * LINE_CHARS_MAX)
    with pytest.raises(ValueError, match="longer than"):
        decoder.decode(b"x")
