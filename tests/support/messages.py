"""Messages with every field set, by their descriptors."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.v1 import agent_pb2
from services.runtime.formats.json_form import rules_of

PAYLOADS = list(agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields)


def filled(descriptor: Descriptor) -> Message:
    """A message with every field set."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        value = _value(field)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(value)
        else:
            setattr(message, field.name, value)
    return message


def _value(field: FieldDescriptor) -> object:
    if field.message_type is not None:
        return filled(field.message_type)
    if rules_of(field).json:
        return '{"big":123456789012345678901234567890}'
    if field.type == FieldDescriptor.TYPE_STRING:
        return field.name
    return {
        FieldDescriptor.TYPE_BOOL: True,
        FieldDescriptor.TYPE_BYTES: b"\x00\xff",
        FieldDescriptor.TYPE_DOUBLE: 0.5,
    }.get(field.type, 2**31 - 1)
