"""Each kind of field rule, on requests of the contract; errors name the fields as in the JSON form."""

from typing import Any

import pytest
from google.protobuf.message import Message

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2, keys_pb2, llm_pb2, memory_pb2, tools_pb2
from services.runtime.formats.json_form import measure_json_depth, rules_of
from services.runtime.rpc import field_rules

UUID = "00000000-0000-4000-8000-00000000000a"


def query(**fields: Any) -> agent_pb2.QueryRequest:
    given: dict[str, Any] = {"message": "hi"} | fields
    return agent_pb2.QueryRequest(**given)


def submit(payload: str) -> agent_pb2.SubmitRequest:
    return agent_pb2.SubmitRequest(run_id=UUID, payload=payload)


def append(*lines: memory_pb2.LogLine) -> memory_pb2.AppendRequest:
    return memory_pb2.AppendRequest(chat_id=UUID, run_id=UUID, request_id=UUID, lines=lines)


def step(role: str) -> memory_pb2.LogLine:
    message = memory_pb2.LogMessage(message=llm_pb2.Message(role=role))
    return memory_pb2.LogLine(step=memory_pb2.StepLine(stage="react", messages=[message]))


def reference(identifier: str) -> common_pb2.Reference:
    return common_pb2.Reference(id=identifier)


def tool(parameters: str) -> llm_pb2.ChatRequest:
    messages = [llm_pb2.Message(role="user")]
    tools = [llm_pb2.ToolSchema(name="t", parameters="{}"), llm_pb2.ToolSchema(name="t", parameters=parameters)]
    return llm_pb2.ChatRequest(provider_key="p", model="m", messages=messages, tools=tools)


def nested(levels: int, inside: str = "") -> str:
    return "[" * levels + inside + "]" * levels


@pytest.mark.parametrize(
    "message",
    [
        query(),
        query(chat_id=UUID, role="user", when_busy="reject", on_disconnect="cancel", params='{"a":[1]}'),
        query(chat_id="", role="", when_busy="", params=""),
        query(message="x" * 1_048_576),
        query(scene=agent_pb2.Scene(title="水" * 341)),
        query(references=[reference("r")] * 100),
        submit(nested(64)),
        submit(nested(64, "1")),
        submit('{"a":' * 64 + "1" + "}" * 64),
        submit("123456789012345678901234567890"),
        append(step("user")),
        tool(""),
        agent_pb2.ListAgentsRequest(),
        agent_pb2.AttachRequest(run_id=UUID),
    ],
)
def test_a_valid_request_passes(message: Message) -> None:
    field_rules.check_rules(message)


UUID_RULE = "must be a UUID in lower case"
DEPTH_RULE = "must not be nested deeper than 64 levels"


@pytest.mark.parametrize(
    ("message", "field", "rule"),
    [
        (query(message=""), "message", "is required"),
        (agent_pb2.AttachRequest(), "runId", "is required"),
        (llm_pb2.ChatRequest(provider_key="p", model="m"), "messages", "is required"),
        (query(chat_id="../../x"), "chatId", UUID_RULE),
        (query(chat_id=UUID.upper()), "chatId", UUID_RULE),
        (query(chat_id=UUID + "\n"), "chatId", UUID_RULE),
        (query(chat_id=UUID.replace("-", "")), "chatId", UUID_RULE),
        (query(chat_id="٠" * 8 + UUID[8:]), "chatId", UUID_RULE),
        (query(when_busy="wait"), "whenBusy", "must be one of reject, enqueue, interrupt, rollback"),
        (query(role="system"), "role", "must be one of user"),
        (keys_pb2.CreateKeyRequest(name="n", user="u", scopes=["ask", "all"]), "scopes", "must be one of ask, answer"),
        (query(message="x" * 1_048_577), "message", "must not be longer than 1048576 bytes"),
        (query(scene=agent_pb2.Scene(title="水" * 342)), "scene.title", "must not be longer than 1024 bytes"),
        (query(references=[reference("r")] * 101), "references", "must not have more than 100 items"),
        (query(references=[reference("")]), "references[0].id", "is required"),
        (
            query(references=[reference("r"), reference("x" * 257)]),
            "references[1].id",
            "must not be longer than 256 bytes",
        ),
        (submit(""), "payload", "is required"),
        (submit(nested(65)), "payload", DEPTH_RULE),
        (submit(nested(65, "1")), "payload", DEPTH_RULE),
        (tool(nested(65)), "tools[1].parameters", DEPTH_RULE),
        (append(step("user"), step("robot")), "lines[1].step.messages[0].message.role", "must be one of"),
        (tools_pb2.UploadFileRequest(start=tools_pb2.UploadStart()), "start.name", "is required"),
    ],
)
def test_a_broken_rule_is_named_with_its_field(message: Message, field: str, rule: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        field_rules.check_rules(message)
    assert caught.value.metadata["field"] == field
    assert caught.value.metadata["rule"].startswith(rule)
    assert caught.value.message == f"{field}: {caught.value.metadata['rule']}"


@pytest.mark.parametrize(
    "text", ["secret", "{'secret':1}", '{"secret":', "NaN", '"\\ud800"', nested(5000), nested(100_000)]
)
def test_invalid_json_is_rejected_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        field_rules.check_rules(submit(text))
    assert caught.value.metadata["field"] == "payload"
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("value", "depth"), [(1, 0), ("x", 0), (None, 0), ([], 1), ({}, 1), ([1], 1), ([[], {"a": [{}]}], 4)]
)
def test_depth_counts_nested_lists_and_objects(value: object, depth: int) -> None:
    assert measure_json_depth(value) == depth


def test_an_alias_is_available_to_the_facades() -> None:
    assert rules_of(agent_pb2.SubmitRequest.DESCRIPTOR.fields_by_name["payload"]).alias == "params"
    assert rules_of(agent_pb2.SubmitRequest.DESCRIPTOR.fields_by_name["run_id"]).alias == ""
