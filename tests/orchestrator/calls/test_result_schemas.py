"""What forms and questions accept: a schema of the tool's, text or a choice for a question; the rest is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import InvalidRequest
from tests.support.orchestrator import Serve, Suite, answers, ask, kinds, last_result, only, submit, submits, tool
from tests.support.orchestrator.steps import ANSWER, call_tool
from tests.support.order import Event

LISTED = {"toolConfig": {"frontends": ["confirm", "ask_human"]}}

SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "items": {"items": {"properties": {"n": {"maximum": 9}}}}},
    "required": ["size"],
    "additionalProperties": False,
}
CHOICES = {"question": "Which?", "choices": ["tea", "milk"]}

CASES: dict[str, tuple[str, Any, Any, list[tuple[Any, str]]]] = {
    "a form": (
        "confirm",
        {},
        {"size": "large", "items": [{"n": 1}]},
        [
            ({"size": "secret"}, r'\$\.size: it is not one of "small" or "large" \(rule: enum\)'),
            ({"size": "small", "items": [{"n": 1}, {"n": 10}]}, r"\$\.items\[1\]\.n: .* \(rule: maximum\)"),
            ({}, r'\$: "size" is a required property \(rule: required\)'),
            ({"size": "small", "more": 1}, r"\(rule: additionalProperties\)"),
            ("secret", r"\$: it is not of type"),
        ],
    ),
    "a question": (
        "ask_human",
        {"question": "Which?"},
        {"answer": "this"},
        [(3, r"\$: .* \(rule: type\)"), ({"answer": 3}, r"\$\.answer: .*type"), ({}, r"\(rule: required\)")],
    ),
    "a question's text": ("ask_human", {"question": "Which?"}, "this", [(None, "rule: type")]),
    "a choice": (
        "ask_human",
        CHOICES,
        {"answer": "milk"},
        [({"answer": "secret"}, r"\$\.answer: .*enum"), ("secret", "enum")],
    ),
    "the default of a choice": ("ask_human", CHOICES | {"default": "any"}, "any", [("", "enum")]),
    "no choice where none is required": ("ask_human", CHOICES | {"required": False}, "", [("x", "enum")]),
}


def offer(suite: Suite, **fields: Any) -> None:
    suite.tools.tools.append(tool("confirm", "frontend", timeout_ms=100_000, viewport_key="view", **fields))


def asking(name: str, arguments: Any) -> list[Any]:
    return call_tool(name, json.dumps(arguments))


@pytest.mark.parametrize(("name", "arguments", "good", "refused"), CASES.values(), ids=CASES)
async def test_a_payload_that_does_not_fit_is_refused_and_the_gate_stays_open(
    name: str, arguments: Any, good: Any, refused: list[tuple[Any, str]], serve: Serve
) -> None:
    async with serve(asking(name, arguments), ANSWER, **LISTED) as suite:
        offer(suite, result_schema=json.dumps(SCHEMA))

        async def answer(opened: Event) -> None:
            for payload, problem in refused:
                with pytest.raises(InvalidRequest, match=problem) as caught:
                    await answers(suite, payload)(opened)
                assert "secret" not in str(caught.value), "what a person wrote is in no error"
                with pytest.raises(InvalidRequest, match=problem):
                    await submit(suite, opened["runId"], opened["gateId"], payload)
            assert (await suite.client.gate(opened["runId"], opened["gateId"])).state == "open"
            await answers(suite, good)(opened)

        events = await ask(suite, ("gate.open", answer))
        assert json.loads(last_result(suite)) == good
    assert kinds(events, "gate", "request.submit") == ["gate.open", "request.submit", "gate.close"]
    opened = only(events, "gate.open")
    assert opened["resultSchema"] == SCHEMA if name == "confirm" else "if" in opened["resultSchema"]


async def test_an_answer_that_comes_before_its_gate_is_checked_too(serve: Serve) -> None:
    async with serve(asking("confirm", {}), ANSWER, **LISTED) as suite:
        offer(suite, result_schema=json.dumps(SCHEMA))

        async def answer(begun: Event) -> None:
            with pytest.raises(InvalidRequest, match="rule: required"):
                await submits(suite, {})(begun)
            await submits(suite, {"size": "small"})(begun)

        await ask(suite, ("tool.start", answer))
        assert json.loads(last_result(suite)) == {"size": "small"}


@pytest.mark.parametrize("payload", [None, 1, "x", [], {"any": ["thing"]}], ids=repr)
async def test_without_a_schema_any_json_is_taken(payload: Any, serve: Serve) -> None:
    async with serve(asking("confirm", {}), ANSWER, **LISTED) as suite:
        offer(suite)
        events = await ask(suite, ("gate.open", answers(suite, payload)))
        assert json.loads(last_result(suite)) == payload
    assert "resultSchema" not in only(events, "gate.open")
