"""No text of a caller takes much processor time: every text field of every RPC is filled, as large as a client may
send it, with each of the shapes that are known to slow programs down.

Fields are found in the descriptors, so that new ones are covered automatically. The time measured is the processor
time of the whole suite and its client, in one process.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from services.runtime.auth.identity import acting_as
from services.runtime.formats.json_form import rules_of
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX
from tests.support.contract import RPCS
from tests.support.shapes import SHAPES
from tests.support.tenants.ground import Ground, outcome
from tests.support.tenants.suite import ADA, fresh

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECONDS_MAX = 2.0
BYTES = EDGE_MESSAGE_BYTES_MAX - 4096
"""Room for the other fields of a message."""

Path_ = tuple[FieldDescriptor, ...]


def find_texts(kind: Descriptor, above: Path_ = ()) -> Iterator[Path_]:
    """Yield the paths of all text and bytes fields of a message, nested ones included."""
    for field in kind.fields:
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield (*above, field)
        elif field.message_type is not None and field.message_type not in [ancestor.message_type for ancestor in above]:
            yield from find_texts(field.message_type, (*above, field))


def make_text(field: FieldDescriptor, unit: str, size_bytes: int) -> str:
    text = unit * (size_bytes // len(unit.encode()))
    if not rules_of(field).json or unit in "[9":
        return text
    return json.dumps({"a": text[: len(text) // 2]}, ensure_ascii=False)


def fill_field(message: Message, path: Path_, text: str) -> None:
    """Set the text at `path`, and whatever is required."""
    kind: Any = message.DESCRIPTOR
    for field in kind.fields:
        if rules_of(field).required and field is not path[0]:
            _set(message, field, _make_required(field))
    first, rest = path[0], path[1:]
    if not rest:
        _set(message, first, text.encode() if first.type == FieldDescriptor.TYPE_BYTES else text)
        return
    below = getattr(message, first.name)
    if hasattr(below, "items"):  # a map
        below["a" if rest[0].name == "value" else text] = text if rest[0].name == "value" else "a"
        return
    inner = below.add() if first.is_repeated else below
    fill_field(inner, rest, text)
    if not first.is_repeated:
        inner.SetInParent()


def _make_required(field: FieldDescriptor) -> Any:
    rules = rules_of(field)
    if field.message_type is not None:
        message = GetMessageClass(field.message_type)()
        for below in field.message_type.fields:
            if rules_of(below).required:
                _set(message, below, _make_required(below))
        return message
    if field.type == FieldDescriptor.TYPE_STRING:
        return fresh() if rules.uuid else rules.words[0] if rules.words else "{}" if rules.json else "plain"
    return b"x" if field.type == FieldDescriptor.TYPE_BYTES else 1


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name).append(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


async def measure_s(ground: Ground, rpc: MethodDescriptor, path: Path_, unit: str, size_bytes: int) -> float:
    request = GetMessageClass(rpc.input_type)()
    fill_field(request, path, make_text(path[-1], unit, size_bytes))
    began_s = time.process_time()
    if rpc.containing_service.name == "LlmService":
        with acting_as(ADA):
            await outcome(ground.channels["LlmService"], rpc, [request.SerializeToString()])
    else:
        await ground.suite.call(rpc, ADA, [request])
    return time.process_time() - began_s


@pytest.mark.parametrize("name", sorted(RPCS))
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["some", "all"])
async def test_no_text_field_takes_much_processor_time(ground: Ground, name: str, is_whole: bool) -> None:
    """The daily check tries one shape for each field, in turn, at a sixteenth of the size."""
    rpc, slow_fields = RPCS[name], dict[str, float]()
    for index, path in enumerate(find_texts(rpc.input_type)):
        chosen_shape = [*SHAPES][(index + len(name)) % len(SHAPES)]
        for shape in SHAPES if is_whole else [chosen_shape]:
            taken_s = await measure_s(ground, rpc, path, SHAPES[shape], BYTES if is_whole else BYTES // 16)
            if taken_s > (SECONDS_MAX if is_whole else SECONDS_MAX / 4):
                slow_fields[f"{'.'.join(field.json_name for field in path)} of {shape}"] = round(taken_s, 2)
    assert slow_fields == {}
