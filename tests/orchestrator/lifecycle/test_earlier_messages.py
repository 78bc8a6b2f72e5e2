"""Queries that bring the conversation of another program, and copies of queries, which miss no field."""

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.orchestrator.lifecycle.queries import (
    STEER_FIELDS,
    STEER_LEFT_OUT,
    STEER_OWN_FIELDS,
    query_event,
    steer_query,
)
from tests.support.orchestrator import Serve, call, content, finish

CALL = {"id": "x-1", "name": "locate", "arguments": '{"who":"me"}'}
MESSAGES: Any = [
    {"role": "system", "content": "Speak French."},
    {"role": "user", "content": "Where am I?"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "x-1", "content": "Lyon"},
]


async def test_the_model_gets_each_history_message_in_its_role_in_this_and_later_runs(serve: Serve) -> None:
    async with serve(content("Warm.") + finish("stop"), content("Yes.") + finish("stop")) as suite:
        await suite.ask("How warm?", history=MESSAGES)
        await suite.ask("Sure?", chat_id=suite.chat_id)
        first, second = suite.llm.requests
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "tool", "user"]
    assert first.messages[0].content[0].text == "Speak French."
    assert first.messages[2].tool_calls[0].id == first.messages[3].tool_call_id == "x-1"
    assert [message.role for message in second.messages] == [message.role for message in first.messages] + [
        "assistant",
        "user",
    ]
    assert second.messages[0] == first.messages[0]


async def test_a_run_continues_after_its_progress_and_its_own_calls_get_new_ids(serve: Serve) -> None:
    again = call("look", call_id="x-1")
    async with serve(again + finish("tool_calls"), content("Lyon.") + finish("stop")) as suite:
        await suite.ask("Where am I?", progress=MESSAGES[2:])
        first, second = suite.llm.requests
    assert [message.role for message in first.messages] == ["user", "assistant", "tool"]
    ids = [tool_call.id for message in second.messages for tool_call in message.tool_calls]
    assert (len(ids), ids[0]) == (2, "x-1")
    assert ids[1] != "x-1"


RESULT = {"role": "tool", "tool_call_id": "x-1", "content": "Lyon"}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"history": [RESULT]}, "history[0].toolCallId"),
        ({"history": [*MESSAGES, RESULT]}, "history[4].toolCallId"),
        ({"history": MESSAGES, "progress": [RESULT]}, "progress[0].toolCallId"),
        ({"history": [{"role": "tool", "content": "a"}]}, "history[0].toolCallId"),
        ({"history": [{"role": "user", "content": "a", "tool_call_id": "b"}]}, "history[0].toolCallId"),
        ({"history": [{"role": "user", "tool_calls": [CALL]}]}, "history[0].toolCalls"),
        ({"history": [{"role": "assistant", "tool_calls": [CALL, CALL]}]}, "history[0].toolCalls"),
        ({"history": [{"role": "wizard"}]}, "history[0].role"),
        ({"history": [{"role": "assistant", "tool_calls": [CALL | {"id": "é" * 129}]}]}, "history[0].toolCalls[0].id"),
        ({"progress": [{"role": "user", "content": "a"}]}, "progress[0].role"),
        ({"history": [{"role": "assistant", "tool_calls": [CALL] * 128}] * 79}, "history"),
    ],
)
async def test_messages_that_no_model_could_have_had_are_refused_with_their_field(
    serve: Serve, fields: Any, place: str
) -> None:
    async with serve() as suite:
        with pytest.raises(InvalidRequest) as caught:
            await suite.ask("hi", **fields)
    assert caught.value.metadata["field"] == place


QUERY_FIELDS = agent_pb2.QueryRequest.DESCRIPTOR.fields_by_name
EVENT_FIELDS = agent_pb2.RequestQuery.DESCRIPTOR.fields_by_name


def set_field(message: Any, field: FieldDescriptor) -> None:
    """Set a field to a value that is not its default."""
    value = getattr(message, field.name)
    if field.is_repeated:
        value.add()
    elif isinstance(value, str):
        setattr(message, field.name, f"the {field.name}")
    elif isinstance(value, (bool, int)):
        setattr(message, field.name, type(value)(1))
    else:
        value.SetInParent()


def make_full_query() -> agent_pb2.QueryRequest:
    """Return a query with all fields set."""
    query = agent_pb2.QueryRequest()
    for field in QUERY_FIELDS.values():
        set_field(query, field)
    assert len(query.ListFields()) == len(QUERY_FIELDS)
    return query


def test_the_query_event_has_every_field_of_the_query() -> None:
    query = make_full_query()
    event = query_event(query, "ada")
    assert [field.name for field, _ in event.ListFields()] == [field.name for field in EVENT_FIELDS.values()]
    assert event.by == "ada"
    for name in {*EVENT_FIELDS} - {"by"}:
        assert getattr(event, name) == getattr(query, name)


def test_the_query_event_omits_fields_that_the_query_omits() -> None:
    event = query_event(agent_pb2.QueryRequest(message="hi", agent_key=""), "ada")
    assert [field.name for field, _ in event.ListFields()] == ["message", "agent_key", "by"]


def test_every_query_field_is_copied_or_left_out_when_a_steer_becomes_a_query() -> None:
    assert {*STEER_FIELDS, *STEER_OWN_FIELDS, *STEER_LEFT_OUT} == set(QUERY_FIELDS)
    query = make_full_query()
    steer = steer_query(query, "s1", "and more")
    assert {field.name for field, _ in steer.ListFields()} == STEER_FIELDS | STEER_OWN_FIELDS
    assert all(getattr(steer, name) == getattr(query, name) for name in STEER_FIELDS)
    assert steer == steer_query(query, "s1", "and more")
    assert (steer.role, steer.message) == ("user", "and more")
