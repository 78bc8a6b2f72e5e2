"""Rules of the contract that can be checked for every RPC and field.

buf checks style and comments; these tests check our own rules.
"""

import re
from typing import Any

import pytest
from google.api import annotations_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from headrace.contract import FILES
from headrace.v1 import agent_pb2
from services.runtime.formats.json_form import rules_of
from tests.support.contract import RPCS

JSON_BY_NATURE = {"params", "payload", "arguments", "tool_params", "param", "details"}
"""Names that are JSON wherever they stand in an event; `result` and `delta` are text wherever they stand."""


def messages(*roots: Descriptor) -> dict[str, Descriptor]:
    """Return `roots` and our messages nested in their fields, at any depth."""
    found, waiting = dict[str, Descriptor](), list(roots)
    while waiting:
        message = waiting.pop()
        if message.full_name not in found and message.file.package == "headrace.v1":
            found[message.full_name] = message
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return found


def fields(*roots: Descriptor) -> list[FieldDescriptor]:
    return [field for message in messages(*roots).values() for field in message.fields]


HTTP: Any = annotations_pb2.http
ALL_MESSAGES = [message for file in FILES for message in file.message_types_by_name.values()]


def route(method: MethodDescriptor) -> str | None:
    if not method.GetOptions().HasExtension(HTTP):
        return None
    rule = method.GetOptions().Extensions[HTTP]
    verb = rule.WhichOneof("pattern")
    assert verb is not None
    return f"{verb.upper()} {getattr(rule, verb)}"


def is_text(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_STRING


def test_each_route_leads_to_one_rpc() -> None:
    routes = [found for method in RPCS.values() if (found := route(method))]
    assert len(set(routes)) == len(routes)
    assert [
        found for found in routes if not re.fullmatch(r"(GET|POST|DELETE) (/api(/[a-z]+)+|/hooks/{schedule_id})", found)
    ] == []


def test_a_request_body_is_the_message_and_a_response_body_one_of_its_fields() -> None:
    for method in RPCS.values():
        rule = method.GetOptions().Extensions[HTTP]
        whole = "payload" if method.name == "ReceiveWebhook" else "*"  # whose signature is of the body as it came
        assert rule.body == (whole if rule.post else "")
        assert not rule.additional_bindings
        if rule.response_body:
            assert rule.response_body in method.output_type.fields_by_name


def payloads() -> dict[str, Descriptor]:
    """Return the payloads of AgentDelta by field name."""
    fields = agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields
    return {field.name: field.message_type for field in fields if field.message_type is not None}


def test_an_event_payload_field_is_named_after_its_message() -> None:
    for name, message in payloads().items():
        assert message.name == name.replace("_", " ").title().replace(" ", "")


def test_an_events_fields_do_not_collide_with_the_envelope() -> None:
    allowed = {("task_id", name) for name in ("TaskStart", "TaskComplete", "TaskCancel", "TaskFail")}
    allowed |= {("subagent_id", name) for name in ("SubagentStart", "SubagentEnd")}
    envelope = {"seq", "type", "timestamp", "subagent_id", "task_id"}
    collisions = {(field.name, message.name) for message in payloads().values() for field in message.fields}
    assert {found for found in collisions if found[0] in envelope} == allowed


def test_json_fields_of_events_are_embedded_as_json_and_text_is_not() -> None:
    for field in fields(agent_pb2.AgentDelta.DESCRIPTOR):
        if field.name in JSON_BY_NATURE:
            assert rules_of(field).json, field.full_name
        if field.name in ("result", "delta", "text"):
            assert not rules_of(field).json, field.full_name


def test_a_field_rule_is_set_only_where_it_can_be_checked() -> None:
    for owner, field in [(message, field) for message in ALL_MESSAGES for field in message.fields]:
        rules = rules_of(field)
        if rules.json or rules.uuid or rules.words or rules.bytes_max:
            assert is_text(field), field.full_name
            assert rules.uuid or rules.words or not field.is_repeated, field.full_name  # these hold for each item
        if rules.items_max or rules.omit_empty:
            assert field.is_repeated, field.full_name
        if rules.required:
            assert is_text(field) or field.message_type is not None, field.full_name
        if rules.alias:
            assert rules.alias not in {other.json_name for other in owner.fields}, field.full_name


@pytest.mark.parametrize(
    "method", [method for method in RPCS.values() if route(method)], ids=lambda method: method.name
)
def test_every_field_an_outside_caller_can_send_is_bounded(method: MethodDescriptor) -> None:
    """JSON counts as bounded: its depth is limited, and its size by that of the message."""
    for field in fields(method.input_type):
        rules = rules_of(field)
        if field.is_repeated:
            assert rules.items_max, field.full_name
        elif is_text(field):
            assert rules.bytes_max or rules.uuid or rules.words or rules.json, field.full_name


@pytest.mark.parametrize("method", RPCS.values(), ids=lambda method: method.full_name.removeprefix("headrace.v1."))
def test_ids_of_chats_and_runs_in_requests_are_uuids(method: MethodDescriptor) -> None:
    for field in method.input_type.fields:
        if field.name in ("chat_id", "run_id"):
            assert rules_of(field).uuid, field.full_name


def test_the_contract_has_no_enums() -> None:
    """Words with a fixed set of values are strings, in the contract and in JSON alike."""
    assert [name for file in FILES for name in file.enum_types_by_name] == []
