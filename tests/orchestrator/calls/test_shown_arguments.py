"""People approve exactly what runs: long arguments need their hash, and a gate's texts show hidden characters."""

import hashlib
import json
from collections.abc import AsyncGenerator

import pytest

from headrace.errors import InvalidRequest
from headrace.shown_text import SHOWN_CHARS_MAX
from headrace.v1 import common_pb2, tools_pb2
from tests.support.orchestrator import ANSWER, Serve, answers, ask, call_tool, only, tool
from tests.support.orchestrator.answerers import APPROVE, KEYS, LISTED, as_user, offer
from tests.support.orchestrator.gate_runs import reading_run, try_answer
from tests.support.order import Event

GRANTED = '{"decision": "approve", "grant": "chat"}'


def make_arguments(chars: int) -> str:
    """Return arguments of this length, with the important field in the middle."""
    middle = '", "to": "mallory", "b": "'
    return (start := '{"at": 1, "a": "' + "x" * (chars // 2) + middle) + "x" * (chars - len(start) - 2) + '"}'


def with_hash(payload: str, digest: str) -> str:
    return json.dumps(json.loads(payload) | {"argumentsSha256": digest})


@pytest.mark.parametrize("payload", [APPROVE, GRANTED])
async def test_approving_long_arguments_needs_their_hash(serve: Serve, payload: str) -> None:
    given = make_arguments(SHOWN_CHARS_MAX + 1)
    async with serve(call_tool("act", given), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, {"any_of": ["role:finance"]})
        async with reading_run(suite.client) as (gate, follower, _):
            for bad_payload in (payload, with_hash(payload, ""), with_hash(payload, hashlib.sha256(b"{}").hexdigest())):
                assert await try_answer(suite.address, "bob", gate, bad_payload) == InvalidRequest.reason
            async with as_user(suite.address, "bob") as bob:
                gate_details = await bob.gate(*gate)
            assert suite.tools.requests == []
            assert (gate_details.arguments, gate_details.arguments_sha256) == (
                given,
                hashlib.sha256(given.encode()).hexdigest(),
            )
            status = await try_answer(suite.address, "bob", gate, with_hash(payload, gate_details.arguments_sha256))
            assert status == "accepted"
    assert only(follower.events, "gate.open")["argumentsChars"] == len(given)
    assert [request.arguments for request in suite.tools.requests] == [given]


@pytest.mark.parametrize("payload", [APPROVE, '{"decision": "edit", "arguments": {"at": 2}}', '{"decision": "reject"}'])
async def test_arguments_shown_in_full_edited_or_rejected_need_no_hash(serve: Serve, payload: str) -> None:
    chars = SHOWN_CHARS_MAX if payload == APPROVE else SHOWN_CHARS_MAX + 1
    async with serve(call_tool("act", make_arguments(chars)), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, {"any_of": ["role:finance"]})
        async with reading_run(suite.client) as (gate, _, _):
            assert await try_answer(suite.address, "bob", gate, payload) == "accepted"


async def test_a_hash_of_other_arguments_is_refused(serve: Serve) -> None:
    async with serve(call_tool("act", '{"at": 1}'), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, {"any_of": ["role:finance"]})
        async with reading_run(suite.client) as (gate, _, _):
            assert await try_answer(suite.address, "bob", gate, with_hash(APPROVE, "0" * 64)) == InvalidRequest.reason
            right = hashlib.sha256(b'{"at": 1}').hexdigest()
            assert await try_answer(suite.address, "bob", gate, with_hash(APPROVE, right)) == "accepted"


async def ask_to_pay(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Act as a tool server whose question has characters that reorder or hide text."""
    need = common_pb2.InputNeed(
        name="n", server="s", message="pay DE\u202e12\u202c\u200b?", schema='{"type": "object"}'
    )
    asks = [] if request.answers else [need]
    yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="waits", asks=asks))


async def test_the_texts_of_a_gate_escape_hiding_and_reordering_characters(serve: Serve) -> None:
    async def decline(opened: Event) -> None:
        await suite.client.ask_back(opened["runId"], opened["gateId"], "12\u202e34")
        await answers(suite, {"cancelled": True})(opened)

    async with serve(call_tool("book", "{}"), ANSWER, toolConfig={"backends": ["book"]}) as suite:
        suite.tools.tools.append(tool("book", "backend"))
        suite.tools.execute = ask_to_pay
        events = await ask(suite, ("gate.open", decline))
    opened = only(events, "gate.open")
    assert opened["reason"] == "s asks: pay DE\\u202e12\\u202c\\u200b?"
    assert opened["ask"]["message"] == "pay DE\\u202e12\\u202c\\u200b?"
    assert only(events, "gate.step")["note"] == "12\\u202e34"
