"""Copies of a query miss no field: each is looked for through the messages' descriptors."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from headrace.v1 import agent_pb2
from services.orchestrator.lifecycle.query_copies import (
    STEER_FIELDS,
    STEER_LEFT_OUT,
    STEER_OWN_FIELDS,
    query_event,
    steer_query,
)

QUERY_FIELDS = agent_pb2.QueryRequest.DESCRIPTOR.fields_by_name
EVENT_FIELDS = agent_pb2.RequestQuery.DESCRIPTOR.fields_by_name


def set_field(message: Any, field: FieldDescriptor) -> None:
    """Give a field a value that is not its default."""
    value = getattr(message, field.name)
    if field.is_repeated:
        value.add()
    elif isinstance(value, str):
        setattr(message, field.name, f"the {field.name}")
    elif isinstance(value, (bool, int)):
        setattr(message, field.name, type(value)(1))
    else:
        value.SetInParent()


def whole_query() -> agent_pb2.QueryRequest:
    """A query with all fields."""
    query = agent_pb2.QueryRequest()
    for field in QUERY_FIELDS.values():
        set_field(query, field)
    assert len(query.ListFields()) == len(QUERY_FIELDS)
    return query


def test_readers_are_told_every_field_that_the_event_has() -> None:
    query = whole_query()
    event = query_event(query, "ada")
    assert [field.name for field, _ in event.ListFields()] == [field.name for field in EVENT_FIELDS.values()]
    assert event.by == "ada"
    for name in {*EVENT_FIELDS} - {"by"}:
        assert getattr(event, name) == getattr(query, name)


def test_what_a_query_leaves_out_its_event_leaves_out() -> None:
    event = query_event(agent_pb2.QueryRequest(message="hi", agent_key=""), "ada")
    assert [field.name for field, _ in event.ListFields()] == ["message", "agent_key", "by"]


def test_each_field_of_a_query_is_decided_for_messages_that_were_not_heard() -> None:
    assert {*STEER_FIELDS, *STEER_OWN_FIELDS, *STEER_LEFT_OUT} == set(QUERY_FIELDS)
    query = whole_query()
    steer = steer_query(query, "s1", "and more")
    assert {field.name for field, _ in steer.ListFields()} == STEER_FIELDS | STEER_OWN_FIELDS
    assert all(getattr(steer, name) == getattr(query, name) for name in STEER_FIELDS)
    assert steer == steer_query(query, "s1", "and more")
    assert (steer.role, steer.message) == ("user", "and more")
