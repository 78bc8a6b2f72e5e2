"""Finds the RPCs named in a cassette, and parses their messages."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.contract import SERVICES


def find_method(name: str) -> MethodDescriptor:
    """Return the RPC with a name such as `LlmService/StreamChat`; ValueError if there is none."""
    service_name, _, method_name = name.partition("/")
    service = SERVICES.get(service_name)
    if service is None or method_name not in service.methods_by_name:
        raise ValueError(f"there is no RPC {name!r}")
    return service.methods_by_name[method_name]


_TAKEN = {
    method.input_type.full_name: method for name in ("AgentService", "GateService") for method in SERVICES[name].methods
}


def find_method_of(request: Message) -> MethodDescriptor:
    """Return the RPC of AgentService or GateService with this request type, which is unique to it."""
    return _TAKEN[request.DESCRIPTOR.full_name]


def parse_request(name: str, data: bytes) -> Message:
    return GetMessageClass(find_method(name).input_type).FromString(data)


def parse_answer(name: str, data: bytes) -> Message:
    return GetMessageClass(find_method(name).output_type).FromString(data)


def load_request(name: str, given: Any) -> Message:
    """Return the request parsed from JSON; ValueError if it is invalid."""
    return _load(GetMessageClass(find_method(name).input_type), given)


def load_answer(name: str, given: Any) -> Message:
    """Return the answer parsed from JSON; ValueError if it is invalid."""
    return _load(GetMessageClass(find_method(name).output_type), given)


def dump(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message)


def _load(kind: type[Message], given: Any) -> Message:
    try:
        return json_format.ParseDict(given, kind(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from error
