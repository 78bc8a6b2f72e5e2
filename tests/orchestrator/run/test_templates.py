"""Argument templates: their values, what stays unchanged, and the error for the model when there is no value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import tools_pb2
from services.orchestrator.run.answers.toolbox import Unresolvable, fill_templates
from tests.support.orchestrator import Serve, Suite, as_json, ask, last_result, only, tool
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, call, call_tool, finish
from tests.support.order import Event

RESULTS = {
    "find": '{"id": 123456789012345678901234567890, "price": 1.10, "day": "2026-02-27", "at": "2026-12-31T23:30:00Z",'
    ' "none": null, "yes": true, "list": [1, {"a": 2}], "name": "x\\u00e9\\"",'
    ' "basic": "20260227", "bad": "2026-02-30"}',
    "words": "it is warm",
    "list": "[1]",
}

FIND = RESULTS.get


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ("{{find.id}}", "123456789012345678901234567890"),
        ("{{ find.price }}", "1.10"),
        ("{{find.day}}", '"2026-02-27"'),
        ("{{find.day+3d}}", '"2026-03-02"'),
        ("{{find.day-58d}}", '"2025-12-31"'),
        ("{{find.at+1d}}", '"2027-01-01T23:30:00Z"'),
        ("{{find.none}}", "null"),
        ("{{find.yes}}", "true"),
        ("{{find.list}}", '[1, {"a": 2}]'),
        ("{{find.name}}", '"x\\u00e9\\""'),
    ],
)
def test_a_template_is_replaced_by_the_field_with_its_type(value: str, becomes: str) -> None:
    assert fill_templates(json.dumps({"a": {"b": [value]}}), FIND) == f'{{"a":{{"b":[{becomes}]}}}}'


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("see {{find.gone}}", "{{find.gone}} has no value: the last result of find has the fields"),
        ("see {{Later.id}}", "{{Later.id}} has no value: Later has no successful result in this run"),
        ("{{find.a.b}}", "{{find.a.b}} is no template: expected {{find.field}} or, for a date, {{find.field+3d}}"),
        ("{{find.day+3}}", "{{find.day+3}} is no template"),
        ("on {{ later.day + 3d }}", "{{ later.day + 3d }} is no template"),
        ("{{find.day}} {{find.id+1d}}", "{{find.id+1d}} has no value: id is no date"),
        ("{{gone.id}}", "{{gone.id}} has no value: gone has no successful result"),
        ("{{find.gone}}", "{{find.gone}} has no value: the last result of find has the fields at, bad"),
        ("{{words.id}}", "{{words.id}} has no value: the last result of words is no JSON object"),
        ("{{list.id}}", "is no JSON object"),
        ("{{find.id+1d}}", "{{find.id+1d}} has no value: id is no date"),
        ("{{find.name+1d}}", "is no date"),
        ("{{find.basic+1d}}", "is no date"),
        ("{{find.bad+1d}}", "is no date"),
        ("{{find.day-999999d}}", "{{find.day-999999d}} has no value: day is no date that can be moved so"),
    ],
)
def test_an_unresolvable_template_is_named_in_the_error(value: str, problem: str) -> None:
    with pytest.raises(Unresolvable) as caught:
        fill_templates(json.dumps([value]), FIND, lambda name: name == name.lower() or name == "Later")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("see {{find.id}}", "see 123456789012345678901234567890"),
        ("{{find.name}} and {{ find.price }}!", 'xé" and 1.10!'),
        ("from {{find.day}} to {{find.day+3d}}", "from 2026-02-27 to 2026-03-02"),
        ("{{find.list}}, {{find.none}}, {{find.yes}}", '[1, {"a": 2}], null, true'),
        ("\n{{find.day}}", "\n2026-02-27"),
        ("{{{find.day}}}", "{2026-02-27}"),
    ],
)
def test_a_template_inside_a_longer_string_becomes_text(text: str, becomes: str) -> None:
    assert json.loads(fill_templates(json.dumps({"a": [text]}), FIND)) == {"a": [becomes]}


@pytest.mark.parametrize(
    "text",
    ["{{find}}", "{{find.id}", "{{date}}", "{{}}", "<p>{{ user.name }}</p>", "{{ user.name | upper }}", "{{a.b+c}}"],
)
def test_braces_that_are_not_a_template_stay_text(text: str) -> None:
    assert json.loads(fill_templates(json.dumps({"a": text}), FIND, {"find"}.__contains__)) == {"a": text}


@pytest.mark.parametrize("arguments", [json.dumps("x" + "{{big.text}}" * 50), json.dumps(["{{big.text}}"] * 50)])
def test_filled_arguments_are_limited_in_length(arguments: str) -> None:
    with pytest.raises(Unresolvable, match="1000000 characters"):
        fill_templates(arguments, {"big": json.dumps({"text": "x" * 30_000})}.get)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["{{", "{{find.id", "x {{user.id}}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.sampled_from(["{{find.id}}", "{{find.list}}", "{{find.day+3d}}"]), st.booleans())
def test_everything_but_the_templates_stays_unchanged(value: Any, template: str, ascii_only: bool) -> None:
    given_text = json.dumps({"keep": value, "take": [template]}, ensure_ascii=ascii_only)
    if not ascii_only:
        given_text = given_text.encode(errors="replace").decode()
    filled = json.loads(fill_templates(given_text, FIND))
    assert filled["keep"] == json.loads(given_text)["keep"]
    assert filled["take"] == [json.loads(fill_templates(json.dumps(template), FIND))]


LISTED = {"toolConfig": {"backends": ["look", "find"]}}


def offer(suite: Suite, *results: str | None) -> None:
    """Offer the tool `find`, which returns these results in turn; None: it fails."""
    suite.tools.tools.append(tool("find", "backend"))
    outcomes = [tools_pb2.ToolOutcome(ok=result is not None, result=result or '{"id":9}') for result in results]
    suite.tools.plays["find"] = [[tools_pb2.ToolDelta(result=outcome)] for outcome in outcomes]


async def chat_events(suite: Suite) -> list[Event]:
    return [as_json(event) for event in (await suite.client.chat(suite.chat_id)).events]


async def test_readers_see_the_template_and_the_tool_gets_the_value(serve: Serve) -> None:
    turns = [call("find", "{}"), call("look", '{"at":"{{find.id}}","n":1}', call_id="call_2")]
    async with serve(*[turn + finish("tool_calls") for turn in turns], ANSWER, **LISTED) as suite:
        offer(suite, RESULTS["find"])
        events = await ask(suite)
        history = await chat_events(suite)
        filled_arguments = '{"at":123456789012345678901234567890,"n":1}'
        assert suite.tools.requests[-1].arguments == filled_arguments
    written = "".join(
        event["delta"] for event in events if event["type"] == "tool.args" and event["toolId"] == "call_2"
    )
    assert written == '{"at":"{{find.id}}","n":1}'
    ends = {event["toolId"]: event.get("toolParams") for event in events if event["type"] == "tool.end"}
    assert ends["call_2"] == json.loads(filled_arguments)
    [snapshot] = [event for event in history if event["type"] == "tool.snapshot" and event["toolId"] == "call_2"]
    assert (snapshot["toolParams"], snapshot["arguments"]) == (json.loads(filled_arguments), json.loads(written))


@pytest.mark.parametrize("text", ["{{find.id}}", "see {{find.id}}"])
async def test_a_template_without_a_value_gets_an_error_result_and_no_call_runs(serve: Serve, text: str) -> None:
    async with serve(call_tool("look", json.dumps({"at": text})), ANSWER, **LISTED) as suite:
        offer(suite, "{}")
        events = await ask(suite)
        assert suite.tools.requests == []
        assert "{{find.id}} has no value: find has no successful result in this run" in last_result(suite)
        history = await read_recorded(suite, suite.run_ids[0])
    assert "toolParams" not in only(events, "tool.end")
    snapshot = only(history, "tool.snapshot")
    assert ("toolParams" in snapshot, snapshot["arguments"]) == (False, {"at": text})


async def test_a_call_with_braces_that_are_not_a_template_runs_unchanged(serve: Serve) -> None:
    arguments = '{"at":"say {{hello}}"}'
    async with serve(call_tool("look", arguments), ANSWER, **LISTED) as suite:
        offer(suite, "{}")
        events = await ask(suite)
        history = await read_recorded(suite, suite.run_ids[0])
        assert suite.tools.requests[0].arguments == arguments
    assert only(events, "tool.end")["toolParams"] == only(history, "tool.snapshot")["toolParams"]


async def test_a_template_in_a_longer_string_is_filled_only_for_known_tools(serve: Serve) -> None:
    arguments = '{"at":"the {{find.id}} of {{user.id}}"}'
    turns = [call("find", "{}"), call("look", arguments, call_id="call_2")]
    async with serve(*[turn + finish("tool_calls") for turn in turns], ANSWER, **LISTED) as suite:
        offer(suite, '{"id":"x"}')
        events = await ask(suite)
        assert suite.tools.requests[-1].arguments == '{"at":"the x of {{user.id}}"}'
    ends = {event["toolId"]: event.get("toolParams") for event in events if event["type"] == "tool.end"}
    assert ends["call_2"] == {"at": "the x of {{user.id}}"}


async def test_a_template_uses_the_latest_successful_result(serve: Serve) -> None:
    finds = [call("find", f'{{"n":{number}}}', call_id=f"f{number}") for number in range(3)]
    look = call("look", '{"at":"{{FIND.id}}"}', call_id="x")
    async with serve(*[turn + finish("tool_calls") for turn in [*finds, look]], ANSWER, **LISTED) as suite:
        offer(suite, '{"id":1}', '{"id":2}', None)
        await ask(suite)
        assert suite.tools.requests[-1].arguments == '{"at":2}'
