"""Random requests made from their descriptors: some valid, most invalid in some way, and the same in every run."""

import random
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from services.runtime.formats.json_form import rules_of

TEXTS = ["", "a", " ", "\0", "x\n\r\t", "../../etc/passwd", "/", "水车 🧭", "\u2028", "' OR 1=1 --", "x" * 300]
TEXTS.append("y" * 70_000)
JSONS = ["{}", "[]", "null", '{"a": 1}', "{", "[" * 100 + "]" * 100, '{"a": 1e999}', '"\\ud800"', "1" * 400, "NaN"]
INTEGERS = [0, 1, -1, 2, 7, 255, 1000, 2**31 - 1, -(2**31)]
LONGS = [*INTEGERS, 2**53 + 1, 2**63 - 1, -(2**63)]
NUMBERS: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_BOOL: [True, False],
    FieldDescriptor.TYPE_BYTES: [b"", b"\0\xff", b"\x89PNG\r\n", b"z" * 70_000],
    FieldDescriptor.TYPE_DOUBLE: [0.0, -1.5, 1e308, float("inf"), float("nan")],
    FieldDescriptor.TYPE_INT32: INTEGERS,
    FieldDescriptor.TYPE_UINT32: [number for number in INTEGERS if number >= 0],
    FieldDescriptor.TYPE_INT64: LONGS,
    FieldDescriptor.TYPE_UINT64: [number for number in LONGS if number >= 0] + [2**64 - 1],
}
DEPTH_MAX = 5


CARE = (0.0, 0.8, 0.97, 1.0)
"""How likely a value, or the presence of what is required, is as the field's rules want it."""


class BadRequests(random.Random):
    """Makes the requests for one RPC."""

    def __init__(self, seed: str, ids: Sequence[str], names: Sequence[str]) -> None:
        """`ids` and `names` are existing ones."""
        super().__init__(seed)
        self._ids, self._names = list(ids), list(names)
        self._care = 0.0

    def of(self, rpc: MethodDescriptor) -> list[bytes]:
        """The messages of one call, as bytes."""
        self._care = self.choice(CARE)
        count = self.randint(0, 3) if rpc.client_streaming else 1
        return [self._bytes(self._message(rpc.input_type, 0)) for _ in range(count)]

    def _bytes(self, message: Message) -> bytes:
        data = bytearray(message.SerializeToString())
        if data and self.random() < 0.05:
            for _ in range(self.randint(1, 4)):
                data[self.randrange(len(data))] = self.randrange(256)
        return bytes(data[: self.randrange(len(data) + 1)] if self.random() < 0.03 else data)

    def _message(self, kind: Descriptor, depth: int) -> Message:
        message = GetMessageClass(kind)()
        for field in kind.fields:
            if (rules_of(field).required and self._careful()) or self.random() < (0.5 if depth < 2 else 0.2):
                self._set(message, field, depth)
        return message

    def _careful(self) -> bool:
        return self.random() < self._care

    def _set(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        least = 1 if rules_of(field).required and self._careful() else 0
        if field.message_type is not None:
            if depth >= DEPTH_MAX:
                return
            messages = [self._message(field.message_type, depth + 1) for _ in range(self.randint(least, 3))]
            if field.is_repeated:
                getattr(message, field.name).extend(messages)
            elif messages:
                getattr(message, field.name).CopyFrom(messages[0])
        elif field.is_repeated:
            getattr(message, field.name).extend(self._value(field) for _ in range(self.randint(least, 3)))
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: FieldDescriptor) -> Any:
        rules, is_careful = rules_of(field), self._careful()
        if field.type != FieldDescriptor.TYPE_STRING:
            likely = NUMBERS.get(field.type, [0, 1, 99])
            return self.choice(likely[:2] if is_careful else likely)
        if not is_careful:
            return self.choice([*TEXTS, *JSONS, *self._names, *self._ids, *rules.words])
        if rules.uuid:
            return self.choice(self._ids)
        return self.choice(JSONS[:4] if rules.json else list(rules.words) or self._names)
