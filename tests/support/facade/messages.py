"""Messages filled from their descriptors, as far as the field rules allow."""

from typing import Any
from urllib.parse import urlencode

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from services.runtime.formats.json_form import rules_of

UUID = "22222222-2222-4222-8222-222222222222"

TEXT = 'a "\\ \n\r\t\b\f\x00\x1f\x7f \u2028 水 🧭 </script>'
JSON = '{"big": 123456789012345678901234567890, "list": [1e2, -0.0, null, "\\u6c34"],\r\n "x": {}}'
NUMBERS: dict[int, Any] = {
    FieldDescriptor.TYPE_BOOL: True,
    FieldDescriptor.TYPE_BYTES: b"\x00\xff\xfe",
    FieldDescriptor.TYPE_DOUBLE: 0.000012345,
    FieldDescriptor.TYPE_INT32: -(2**31),
    FieldDescriptor.TYPE_UINT32: 2**32 - 1,
    FieldDescriptor.TYPE_INT64: 2**53 + 1,
    FieldDescriptor.TYPE_UINT64: 2**64 - 1,
}


def fill_message(descriptor: Descriptor, text: str = TEXT, json: str = JSON) -> Any:
    """Return a message with every field set; of a oneof, the last field."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        values = [_value(field, text, json)] * (2 if field.is_repeated else 1)
        if field.is_repeated:
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(values[0])
        else:
            setattr(message, field.name, values[0])
    return message


def _value(field: FieldDescriptor, text: str, json: str) -> Any:
    rules = rules_of(field)
    if field.message_type is not None:
        return fill_message(field.message_type, text, json)
    if rules.json:
        return json
    if rules.uuid:
        return UUID
    if rules.words:
        return rules.words[0]
    return text if field.type == FieldDescriptor.TYPE_STRING else NUMBERS[field.type]


def parameters(message: Message) -> str:
    """Encode the message as a URL's query."""
    pairs: list[tuple[str, str]] = []
    for field, value in message.ListFields():
        for item in value if field.is_repeated else [value]:
            text = str(item).lower() if isinstance(item, bool) else str(item)
            pairs.append((field.json_name, text))
    return urlencode(pairs)
