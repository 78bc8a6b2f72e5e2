"""The RPCs over a real server; commands are real processes."""

import asyncio
import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from headrace.errors import InvalidRequest, NotFound, Overloaded
from headrace.streams import reading, rpc_errors
from headrace.v1 import tools_pb2
from services.tools.sandbox.tiers import Sandbox
from services.tools.toolkit.tool import RESULT_CHARS_MAX
from tests.support.timing import within
from tests.support.tools.calls import read_deltas, request
from tests.support.tools.processes import wait_for_no_processes
from tests.support.tools.suite import Serve

EXAMPLES = Path(__file__).parents[2] / "examples" / "tools"


async def test_tools_are_listed_by_name_and_filtered(serve: Serve) -> None:
    async with serve() as suite:
        everything = await suite.stub.ListTools(tools_pb2.ListToolsRequest())
        some = await suite.stub.ListTools(tools_pb2.ListToolsRequest(names=["READ_file", "nobody"]))
    assert [tool.name for tool in everything.tools] == sorted(tool.name for tool in everything.tools)
    assert {tool.kind for tool in everything.tools} == {"backend"}
    assert [tool.name for tool in some.tools] == ["read_file"]


async def test_a_tool_is_found_whatever_the_case_of_its_name(serve: Serve) -> None:
    async with serve() as suite:
        reply = await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="_BASH_"))
        with pytest.raises(NotFound), rpc_errors():
            await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="nobody"))
    assert (reply.tool.name, reply.tool.tier, reply.tool.effect) == ("_bash_", "discovered", "once")
    assert json.loads(reply.tool.parameters)["required"] == ["command"]


async def test_an_unknown_tool_is_an_error(serve: Serve) -> None:
    async with serve() as suite:
        with pytest.raises(NotFound):
            await suite.execute("nobody")


async def test_a_chat_id_with_a_path_is_an_error(serve: Serve) -> None:
    async with serve() as suite:
        request = tools_pb2.ExecuteRequest(
            run_id="00000000-0000-4000-8000-000000000001", tool_call_id="1", tool_name="list_files", chat_id="../../x"
        )
        with pytest.raises(InvalidRequest):
            async with reading(suite.stub.Execute(request)) as deltas:
                await anext(deltas)


async def test_bash_streams_its_output_and_its_result(serve: Serve) -> None:
    arguments = json.dumps({"command": "echo one; sleep 0.2; echo two >&2; exit 3"})
    async with serve() as suite:
        pieces, outcome = await suite.execute("_bash_", arguments)
    assert pieces == [("stdout", "one\n"), ("stderr", "two\n")]
    assert (outcome.ok, outcome.result) == (False, "one\ntwo\n[exit code 3]")
    assert outcome.tool_params == arguments


async def test_bash_runs_in_the_workspace_that_the_file_tools_see(serve: Serve) -> None:
    async with serve() as suite:
        await suite.execute("write_file", '{"path": "outputs/deep/a.txt", "content": "line\\n"}')
        _, shown_file = await suite.execute("_bash_", '{"command": "cat outputs/deep/a.txt; echo b > outputs/b.txt"}')
        _, listed = await suite.execute("list_files", '{"path": "outputs"}')
    assert shown_file.result == "line\n"
    assert listed.result == "outputs/b.txt (2 bytes)\noutputs/deep/a.txt (5 bytes)"


@pytest.mark.parametrize("in_arguments", [True, False])
async def test_a_timeout_is_a_result(serve: Serve, in_arguments: bool) -> None:
    arguments = {"command": "echo begun; sleep 1010.5"} | ({"timeoutMs": 3000} if in_arguments else {})
    async with serve() as suite:
        _, outcome = await suite.execute("_bash_", json.dumps(arguments), 0 if in_arguments else 3000)
    assert (outcome.ok, outcome.result) == (False, "begun\n[ended after 3 s: its time was over]")


async def test_cancelling_the_call_kills_the_command_within_half_a_second(serve: Serve) -> None:
    arguments = '{"command": "setsid sleep 1011.5 & echo $! > pid; echo up; sleep 1011.5"}'
    async with serve() as suite:
        async with reading(suite.call("_bash_", arguments)) as deltas:
            assert (await anext(deltas)).output.delta == "up\n"
        pid = int((suite.workspace / "pid").read_text())
        async with within(0.5):
            while Path(f"/proc/{pid}").exists():  # noqa: ASYNC240 - nothing tells; /proc does not block
                await asyncio.sleep(0.005)


async def test_commands_above_the_limit_are_refused_until_others_end(serve: Serve) -> None:
    waiting = '{"command": "echo up; sleep 1012.5"}'
    async with serve() as suite:
        async with reading(suite.call("_bash_", waiting)) as first, reading(suite.call("_bash_", waiting)) as second:
            await anext(first)
            await anext(second)
            with pytest.raises(Overloaded):
                await suite.execute("_bash_", '{"command": "true"}')
            assert (await suite.execute("list_files"))[1].ok
        await wait_for_no_processes()
        async with within(100):
            while True:
                with suppress(Overloaded):  # a command is gone a moment before its place is free
                    assert (await suite.execute("_bash_", '{"command": "true"}'))[1].ok
                    break
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("_bash_", "{}", "$: "),
        ("_bash_", '{"command": "echo \\u0000"}', "could not be run"),
        ("mock_city_weather", '{"city": 7, "date": "2026-01-01"}', "$.city"),
        ("city_datetime", '{"city": "Atlantis"}', "'Atlantis' is not known"),
        ("read_file", '{"path": "../../../etc/passwd"}', "leads out of the workspace"),
        ("read_file", '{"path": "/etc/passwd"}', "leads out of the workspace"),
        ("read_file", '{"path": "nothing"}', "No such file"),
        ("read_file", '{"path": "outputs"}', "is a folder"),
        ("read_file", '{"path": "a\\u0000b"}', "null"),
        ("write_file", '{"path": "../a", "content": ""}', "leads out of the workspace"),
        ("write_file", '{"path": "outputs", "content": ""}', "Is a directory"),
        ("list_files", '{"path": "nothing"}', "No such file"),
    ],
)
async def test_failures_the_model_can_act_on_are_results(serve: Serve, tool: str, arguments: str, message: str) -> None:
    async with serve() as suite:
        _, outcome = await suite.execute(tool, arguments)
    assert not outcome.ok
    assert message in outcome.result


async def test_the_weather_is_the_same_for_the_same_arguments(serve: Serve) -> None:
    arguments = '{"city": "Shanghai", "date": "2026-05-01"}'
    async with serve() as suite:
        answers = [(await suite.execute("mock_city_weather", arguments))[1].result for _ in range(2)]
        _, other = await suite.execute("mock_city_weather", arguments.replace("-01", "-02"))
    assert answers[0] == answers[1] != other.result
    assert set(json.loads(answers[0])) == {"city", "date", "condition", "temperatureC", "humidityPercent", "windKmh"}


@pytest.mark.parametrize(
    ("city", "zone"),
    [
        ("Shanghai", "Asia/Shanghai"),
        ("new york", "America/New_York"),
        ("Sao Paulo", "America/Sao_Paulo"),
        ("Europe/Paris", "Europe/Paris"),
        ("北京", "Asia/Shanghai"),
        ("San Francisco", "America/Los_Angeles"),
        ("", "UTC"),
    ],
)
async def test_city_datetime_uses_the_citys_time_zone(serve: Serve, city: str, zone: str) -> None:
    async with serve() as suite:
        _, outcome = await suite.execute("city_datetime", json.dumps({"city": city} if city else {}))
    assert json.loads(outcome.result)["timeZone"] == zone


async def test_a_long_file_is_read_in_parts(serve: Serve) -> None:
    text = "".join(f"{number} {'x' * 50}\n" for number in range(1, 2001))
    async with serve() as suite:
        await suite.execute("write_file", json.dumps({"path": "a", "content": text}))
        read, first = "", 1
        while True:
            _, outcome = await suite.execute("read_file", json.dumps({"path": "a", "firstLine": first}))
            assert len(outcome.result) <= RESULT_CHARS_MAX
            part, cut, note = outcome.result.partition("\n[… cut here; go on with firstLine ")
            read += part
            if not cut:
                break
            first = int(note.split()[0])
        _, some = await suite.execute("read_file", '{"path": "a", "firstLine": 3, "lines": 1}')
    assert read == text
    assert some.result == f"3 {'x' * 50}\n"


async def test_reading_a_binary_file_is_refused(serve: Serve) -> None:
    async with serve() as suite:
        await suite.execute("_bash_", '{"command": "head -c 100 /dev/zero > a; mkfifo p"}')
        _, outcome = await suite.execute("read_file", '{"path": "a"}')
        _, pipe = await suite.execute("read_file", '{"path": "p"}')
    assert "is not a text file" in outcome.result
    assert not pipe.ok


async def test_without_a_sandbox_only_commands_are_refused(serve: Serve) -> None:
    async with serve(Sandbox(None, "this kernel has no Landlock")) as suite:
        _, refused = await suite.execute("_bash_", '{"command": "touch made"}')
        _, written = await suite.execute("write_file", '{"path": "a", "content": ""}')
        tools = (await suite.stub.ListTools(tools_pb2.ListToolsRequest())).tools
        assert not (suite.workspace / "made").exists()
    assert not refused.ok
    assert "no Landlock" in refused.result
    assert written.ok
    assert {tool.name for tool in tools if "no Landlock" in tool.unavailable} >= {"_bash_"}
    assert "write_file" not in {tool.name for tool in tools if tool.HasField("unavailable")}


async def test_a_custom_tool_receives_its_arguments_and_streams(serve: Serve) -> None:
    async with serve() as suite:
        (suite.definitions / "say.sh").write_text("cat; echo progress >&2")
        tool = {"name": "say", "command": ["bash", "say.sh"], "parameters": {"type": "object"}}
        (suite.definitions / "say.backend").write_text(json.dumps({"tools": [tool]}))
        suite.catalogue.reload()
        pieces, outcome = await suite.execute("say", '{"n": 12345678901234567890, "text": "你"}')
    assert outcome.result == '{"n": 12345678901234567890, "text": "你"}'
    assert ("stderr", "progress\n") in pieces


async def test_frontend_tools_are_listed_with_their_view_and_timeout(serve: Serve) -> None:
    async with serve() as suite:
        shutil.copytree(EXAMPLES, suite.definitions, dirs_exist_ok=True)
        suite.catalogue.reload()
        dialog = (await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="confirm_dialog"))).tool
        action = (await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="switch_theme"))).tool
        command = (await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="publish_note"))).tool
        _, accepted = await suite.execute("switch_theme", '{"theme": "dark"}')
        _, refused = await suite.execute("switch_theme", '{"theme": "loud"}')
    assert (dialog.kind, dialog.viewport_key, dialog.timeout_ms) == ("frontend", "confirm_dialog", 120_000)
    assert not dialog.HasField("unavailable")
    assert (action.kind, action.HasField("viewport_key"), action.HasField("timeout_ms")) == ("action", False, False)
    assert (command.kind, command.approval) == ("backend", "ask")
    assert (accepted.ok, accepted.result) == (True, "OK")
    assert not refused.ok
    assert "$.theme" in refused.result


async def test_the_example_tools_work(serve: Serve) -> None:
    async with serve() as suite:
        shutil.copytree(EXAMPLES, suite.definitions, dirs_exist_ok=True)
        suite.catalogue.reload()
        _, converted = await suite.execute("convert_units", '{"value": 26.2, "from": "mile", "to": "km"}')
        _, refused = await suite.execute("convert_units", '{"value": 1, "from": "mile", "to": "kg"}')
        weather = await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="mock_city_weather"))
        arguments = json.dumps({"title": "Mill", "text": "The wheel turns."})
        _, published = await suite.execute("publish_note", arguments)
        assert (suite.workspace / "outputs/notes.md").read_text() == "## Mill\n\nThe wheel turns.\n\n"
    assert json.loads(converted.result) == {"value": 42.1648128, "unit": "km"}
    assert published.result == "added to outputs/notes.md\n"
    assert not refused.ok
    assert "known units" in refused.result
    assert weather.tool.after_call_hint


async def test_a_stated_schema_does_not_bypass_the_built_in_one(serve: Serve) -> None:
    async with serve() as suite:
        tool = {"name": "mock_city_weather", "parameters": {"type": "object"}}
        (suite.definitions / "weather.backend").write_text(json.dumps({"tools": [tool]}))
        suite.catalogue.reload()
        _, outcome = await suite.execute("mock_city_weather", '{"city": "Paris"}')
    assert not outcome.ok
    assert "(rule: required)" in outcome.result


def read_count(tool: str, outcome: str) -> float:
    return REGISTRY.get_sample_value("headrace_tool_seconds_count", {"tool": tool, "outcome": outcome}) or 0.0


async def test_a_call_is_counted_by_tool_and_outcome(serve: Serve) -> None:
    ok, failed, cancelled = (
        read_count("list_files", "ok"),
        read_count("read_file", "failed"),
        read_count("_bash_", "left"),
    )
    async with serve() as suite:
        await read_deltas(suite, request("LIST_files", {}))
        await read_deltas(suite, request("read_file", {"path": "nothing"}))
        async with reading(suite.stub.Execute(request("_bash_", {"command": "echo on; sleep 9"}))) as deltas:
            await anext(deltas)
        while read_count("_bash_", "left") == cancelled:
            await asyncio.sleep(0.01)
    assert (read_count("list_files", "ok"), read_count("read_file", "failed")) == (ok + 1, failed + 1)
