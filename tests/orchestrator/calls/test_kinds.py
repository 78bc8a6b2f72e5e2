"""Each kind of tool in a run: which events are streamed, who answers, and what the model receives."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.v1 import tools_pb2
from tests.support.orchestrator import Serve, Suite, ask, kinds, last_result, only, read, results, submits, tool
from tests.support.orchestrator.compaction import call_once, compact_chat
from tests.support.orchestrator.events import read_until
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, call, call_tool, finish
from tests.support.order import Event, fold

THEME = tool(
    "switch_theme",
    "action",
    description="Switches",
    parameters='{"type":"object","properties":{"theme":{"enum":["dark","light"]}},"required":["theme"]}',
)
CONFIRM = tool("confirm_dialog", "frontend", viewport_key="confirm", timeout_ms=20_000)
LISTED = {"toolConfig": {"backends": ["look"], "frontends": ["confirm_dialog"], "actions": ["switch_theme"]}}


async def test_an_action_is_streamed_and_answered_at_once(serve: Serve) -> None:
    big = '{"theme":"dark","n":123456789012345678901234567890}'
    async with serve(call_tool("switch_theme", big), ANSWER, **LISTED) as suite:
        suite.tools.tools.append(THEME)
        events = await ask(suite)
        history = await read_recorded(suite, suite.run_ids[0])
        assert last_result(suite) == "OK"
        assert suite.tools.requests == []
    parts = ["action.start", "action.args", "action.args", "action.end", "action.param", "action.result"]
    assert kinds(events, "action.", "tool.") == parts
    start = only(events, "action.start")
    assert (start["actionName"], start["description"]) == ("switch_theme", "Switches")
    assert start["actionId"].startswith("a_")
    assert len(start["actionId"]) == 10
    assert only(events, "action.param")["param"] == json.loads(big)
    assert fold(history) == fold(events)


async def test_arguments_that_break_an_actions_schema_are_an_error_for_the_model_only(serve: Serve) -> None:
    async with serve(call_tool("switch_theme", '{"theme":"pink"}'), ANSWER, **LISTED) as suite:
        suite.tools.tools.append(THEME)
        events = await ask(suite)
        assert "$.theme" in last_result(suite)
    assert "action.param" not in kinds(events, "action.")


async def test_a_frontend_tool_shows_its_view_and_returns_the_submitted_payload(serve: Serve) -> None:
    async with serve(call_tool("Confirm_Dialog", '{"q":1}'), ANSWER, **LISTED) as suite:
        suite.tools.tools.append(CONFIRM)
        events = await ask(suite, ("tool.start", submits(suite, {"ok": True, "n": 2**70})))
        history = await read_recorded(suite, suite.run_ids[0])
        assert json.loads(last_result(suite)) == {"ok": True, "n": 2**70}
        assert [list(request.messages)[-1].tool_call_id for request in suite.llm.requests[1:]] == ["call_1"]
    start = only(events, "tool.start")
    assert (start["toolType"], start["viewportKey"], start["toolTimeout"]) == ("frontend", "confirm", 20_000)
    assert start["toolId"].startswith("t_")
    assert len(start["toolId"]) == 10
    sent = only(events, "request.submit")
    assert (sent["toolId"], sent["payload"]) == (start["toolId"], {"ok": True, "n": 2**70})
    assert fold(history) == fold(events)
    assert only(history, "request.submit") == sent


async def test_attaching_at_every_seq_folds_actions_and_waits_too(serve: Serve) -> None:
    calls = call("switch_theme", '{"theme":"dark"}') + call("confirm_dialog", index=1, call_id="b")
    parallel = {"react": {"parallelToolCalls": True}}
    async with serve(calls + finish("tool_calls"), ANSWER, **LISTED, **parallel) as suite:
        suite.tools.tools += [THEME, CONFIRM]

        async def answer(event: Event) -> None:
            async with suite.client.attach(event["runId"]) as deltas:
                live = await read_until(deltas, "action.result")
            for seq in range(event["seq"]):
                async with suite.client.attach(event["runId"], seq) as deltas:
                    assert fold(live[:seq] + await read_until(deltas, "action.result")) == fold(live)
            await submits(suite, "yes")(event)

        events = await ask(suite, ("tool.start", answer))
        for seq in range(len(events)):
            assert fold(events[:seq] + await read(suite.client, suite.run_ids[0], seq)) == fold(events)


async def test_a_tool_of_an_unknown_kind_is_not_offered(serve: Serve) -> None:
    async with serve(ANSWER, toolConfig={"backends": ["odd"]}) as suite:
        suite.tools.tools.append(tool("odd", "telepathy"))
        events = await ask(suite)
        assert not suite.llm.requests[0].tools
    assert "its kind 'telepathy' is not known" in only(events, "run.notice")["message"]


TODOS = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress", "id": "x"}]


async def test_todos_are_stored_for_the_chat(serve: Serve) -> None:
    turns = [call("todo_write", json.dumps({"todos": TODOS})), call("todo_read"), ANSWER, call("todo_read"), ANSWER]
    turns = [turn if turn is ANSWER else turn + finish("tool_calls") for turn in turns]
    async with serve(*turns, toolConfig={"backends": ["todo_write", "todo_read"]}) as suite:
        await ask(suite)
        stored = [TODOS[0] | {"id": "1"}, TODOS[1]]
        assert json.loads(last_result(suite)) == {"ok": True, "todos": stored}
        await ask(suite)
        assert json.loads(last_result(suite)) == {"ok": True, "todos": stored}
        assert suite.tools.requests == []


async def test_todo_lists_written_by_parallel_calls_all_succeed(serve: Serve) -> None:
    written = json.dumps({"todos": TODOS})
    calls = [step for n in range(3) for step in call("todo_write", written, index=n, call_id=f"c{n}")]
    listed = {"toolConfig": {"backends": ["todo_write"]}, "react": {"parallelToolCalls": True}}
    async with serve(calls + finish("tool_calls"), ANSWER, **listed) as suite:
        events = await ask(suite)
    assert [ok for _, ok in results(events)] == [True] * 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"todos": [TODOS[1], TODOS[1]]}, "at most one may be in_progress"),
        ({"todos": [{"content": "a", "status": "done"}]}, "$.todos[0].status"),
        ({"todos": "a"}, "$.todos"),
        ({}, "todos"),
    ],
)
async def test_a_bad_list_of_todos_is_refused_with_path_and_rule(serve: Serve, arguments: Any, problem: str) -> None:
    write = call_tool("todo_write", json.dumps(arguments))
    async with serve(write, ANSWER, toolConfig={"backends": ["todo_write"]}) as suite:
        await ask(suite)
        assert problem in last_result(suite)


async def test_sources_and_artifacts_are_in_the_log_and_a_tools_model_calls_are_charged(serve: Serve) -> None:
    source = tools_pb2.ToolDelta(source={"source_id": "s1", "title": "A page", "url": "https://example.com"})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    artifact_fields = {
        "artifact_id": "f1",
        "name": "a.pdf",
        "mime_type": "application/pdf",
        "size_bytes": 3,
        "url": "/x",
    }
    artifact = tools_pb2.ToolDelta(artifact=artifact_fields)  # pyright: ignore[reportArgumentType] - as above
    usage = tools_pb2.ToolDelta(usage={"model_calls": 2, "input_tokens": 100, "output_tokens": 7})  # pyright: ignore[reportArgumentType] - as above
    done = tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="done"))
    budget = {"maxModelCalls": 10, "maxTokens": 1000}
    async with serve(call_tool("look"), ANSWER, budget=budget) as suite:
        suite.tools.tools[0].asks_model = True
        suite.tools.plays["look"] = [[source, artifact, usage, done]]
        events = await ask(suite)
        history = await read_recorded(suite, suite.run_ids[0])
        [request] = suite.tools.requests
    assert (request.model.provider_key, request.model.model) == ("scripted", "m")
    assert (request.budget.model_calls, request.budget.tokens) == (8, 985)
    assert only(history, "source.snapshot") == only(events, "source.snapshot")
    assert only(events, "source.snapshot")["title"] == "A page"
    assert only(history, "artifact.publish") == only(events, "artifact.publish")
    assert only(events, "artifact.publish")["name"] == "a.pdf"
    assert events[-1]["usage"]["modelCalls"] == 4
    assert events[-1]["usage"]["inputTokens"] == 120


OWN = {"toolConfig": {"backends": ["todo_write", "call_subagent"]}}
HALF = '"\\ud83d"'
"""Half of a surrogate pair, as a model that was cut in an emoji writes it."""


async def ask_for_result(suite: Suite) -> str:
    """Run a query that makes one call and completes; return the call's result."""
    events = await suite.ask()
    assert events[-1]["type"] == "run.complete", events[-1]
    [(result, _)] = results(events)
    return result


async def test_a_whole_number_may_be_written_with_a_fraction_of_zero(serve: Serve) -> None:
    calling = call_tool("call_subagent", '{"task":"x","maxLoops":10.0}')
    async with serve(calling, ANSWER, **OWN) as suite:
        assert json.loads(await ask_for_result(suite))["result"] == "All good."


DARK = '{"theme":"dark"}'


@pytest.mark.parametrize(
    "arguments", [f"{{}}{DARK}", DARK + DARK, f"{{}} {{}} {DARK}", DARK + json.dumps(DARK), json.dumps(DARK)]
)
async def test_repeated_arguments_of_one_call_are_read_once(serve: Serve, arguments: str) -> None:
    """Gemini's compatible API begins with an empty object, some servers repeat the whole, also as a text:
    https://github.com/microsoft/autogen/pull/7549 (2026-04), https://github.com/BerriAI/litellm/issues/20480 (2026-02),
    https://github.com/vllm-project/vllm/issues/51697 (2026-08)."""
    async with serve(call_tool("switch_theme", arguments), ANSWER, **LISTED) as suite:
        suite.tools.tools.append(THEME)
        events = await ask(suite)
        history = await read_recorded(suite, suite.run_ids[0])
        assert last_result(suite) == "OK"
    assert only(events, "action.param")["param"] == only(history, "action.param")["param"] == {"theme": "dark"}


PICK = """{"type":"object","properties":{"names":{"type":"array","items":{"type":"string"}},"size":{"type":"integer"},
"parts":{"type":"array","items":{"type":"object","properties":{"at":{"type":"integer"},"note":{"type":"string"}},
"required":["at"]}},"0":{"type":"boolean"},"text":{"type":"string"}},"required":["names"],"additionalProperties":false}"""


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"names": '["a", "b"]'}, {"names": ["a", "b"]}),
        ({"names": [], "size": "10", "0": "true"}, {"names": [], "size": 10, "0": True}),
        ({"names": [], "parts": '[{"at": "1", "note": null}]'}, {"names": [], "parts": [{"at": 1}]}),
        ({"names": [], "size": None, "text": None}, {"names": []}),
        ({"names": [1, "b"], "text": 12345678901234567890}, {"names": ["1", "b"], "text": "12345678901234567890"}),
        # What does not match in either form, or matches as it is, stays.
        ({"names": [], "more": 1}, {"names": [], "more": 1}),
        ({"names": [], "text": 1.10}, {"names": [], "text": 1.10}),
        ({"names": [], "text": True}, {"names": [], "text": True}),
        ({"names": "a"}, {"names": "a"}),
        ({"names": None}, {"names": None}),
        ({"names": '["a"]', "size": "ten"}, {"names": '["a"]', "size": "ten"}),
        ({"names": [], "size": "1e999"}, {"names": [], "size": "1e999"}),
        ({"names": ["[1]"], "text": '{"a": null}'}, {"names": ["[1]"], "text": '{"a": null}'}),
    ],
)
async def test_arguments_with_json_as_a_text_or_null_are_read_as_meant(
    serve: Serve, written: dict[str, Any], meant: dict[str, Any]
) -> None:
    """https://github.com/openclaw/openclaw/pull/96922 (2026-06), https://github.com/earendil-works/pi/issues/9931
    (2026-09), https://github.com/PrefectHQ/fastmcp/issues/932 (2025-06)."""
    async with serve(call_tool("look", json.dumps(written)), ANSWER) as suite:
        suite.tools.tools[0].parameters = PICK
        events = await suite.ask()
        [request] = suite.tools.requests
        history = await read_recorded(suite, suite.run_ids[0])
    assert json.loads(request.arguments) == meant
    assert only(events, "tool.end")["toolParams"] == only(history, "tool.snapshot")["toolParams"] == meant


@pytest.mark.parametrize(
    "name",
    [
        "Look",
        " look\n",
        "functions.look",
        "default_api:look",
        "look<|channel|>commentary",
        "functions.look:0",
        "look()",
    ],
)
async def test_a_name_with_parts_of_the_models_format_is_the_tools(serve: Serve, name: str) -> None:
    """https://github.com/ggml-org/llama.cpp/pull/15158 (2025-08)."""
    async with serve(call_tool(name), call_tool(f"no {name}"), ANSWER) as suite:
        events = await suite.ask()
        called = [call.name for message in suite.llm.requests[-1].messages for call in message.tool_calls]
    assert called == ["look", f"no {name}"]
    assert [event["toolName"] for event in events if event["type"] == "tool.start"] == called
    assert [ok for _, ok in results(events)] == [True, False]


async def test_what_a_tool_of_ours_does_not_know_is_left_out(serve: Serve) -> None:
    """Models know such tools with other fields: https://github.com/anomalyco/opencode/issues/1354 (2025-07)."""
    todos = [{"content": "a", "activeForm": "Doing a", "status": "pending", "id": 1}]
    async with serve(call_tool("todo_write", json.dumps({"todos": todos, "note": "x"})), ANSWER, **OWN) as suite:
        todo = {"content": "a", "status": "pending", "id": "1"}
        assert json.loads(await ask_for_result(suite)) == {"ok": True, "todos": [todo]}


async def test_two_sets_of_arguments_for_one_call_are_refused(serve: Serve) -> None:
    async with serve(call_tool("switch_theme", '{"theme":"dark"}{"theme":"light"}'), ANSWER, **LISTED) as suite:
        suite.tools.tools.append(THEME)
        await ask(suite)
        assert "not valid JSON" in last_result(suite)


@pytest.mark.parametrize("arguments", [f'{{"todos":[{{"content":{HALF},"status":"pending"}}]}}', f"{{{HALF}:1}}"])
async def test_half_a_surrogate_pair_in_arguments_is_an_error_for_the_model(serve: Serve, arguments: str) -> None:
    async with serve(call_tool("todo_write", arguments), ANSWER, **OWN) as suite:
        assert "not valid JSON" in await ask_for_result(suite)


async def test_approval_rules_apply_to_arguments_with_half_a_surrogate_pair(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("tools: {look: [{pattern: secret, then: deny, argument: q}]}")
    turns = [call_tool("look", f'{{"q":["{text}",{HALF}]}}') for text in ("secret", "other")]
    async with serve(*turns, ANSWER) as suite:
        events = await suite.ask()
        assert len(suite.tools.requests) == 1, "the tools service judges the other call"
    assert ["denied" in result for result, _ in results(events)] == [True, False]
    assert events[-1]["type"] == "run.complete"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_history", '{"first":1.0,"last":2.0}'),
        ("read_history", '{"first":100000000000000000000}'),
        ("read_history", '{"first":1e30}'),
        ("read_result", '{"id":"x","offset":100000000000000000000}'),
    ],
)
async def test_any_number_as_a_line_or_offset_gets_a_result(serve: Serve, tool: str, arguments: str) -> None:
    async with serve(ANSWER) as suite:
        await compact_chat(suite, "react")
        call_once(suite, tool, arguments)
        result = await ask_for_result(suite)
    assert ("INVALID_ARGUMENTS" in result) == ("0000" in arguments or "1e" in arguments)
