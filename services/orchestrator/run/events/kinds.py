"""The kind of an event is the name of its payload field."""

from __future__ import annotations

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.v1 import agent_pb2

KINDS: dict[type[Message], str] = {
    GetMessageClass(field.message_type): field.name
    for field in agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields
    if field.message_type is not None
}
