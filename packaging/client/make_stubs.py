#!/usr/bin/env python3
"""Writes headrace/calls.pyi and headrace/sync/calls.pyi: the types of the calls that are made from the contract.

    packaging/client/make_stubs.py

The comments are those of the protos. It needs ruff.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from inspect import Parameter
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

PACKAGE = Path(__file__).parents[2] / "headrace"
sys.path.insert(0, str(PACKAGE.parent))

from headrace.call_arguments import Argument, list_arguments  # noqa: E402
from headrace.contract import RPCS, Rpc, find_comment  # noqa: E402

TYPES = {
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_STRING: "str",
}
STREAMS = {"AgentDelta": "RunStream", "FollowDelta": "ChatStream"}
"""Streams that go on when they are cut, by their messages."""
WIDTH = 108

IMPORTS = """from collections.abc import {iterators}
from contextlib import {context}

from {streams} import ChatStream, RunStream
from headrace.v1 import {modules}
"""


def write_stubs(*, is_async: bool) -> str:
    calls = [rpc for rpc in RPCS.values() if rpc.client is not None]
    body = "\n\n".join(write_call(rpc, is_async=is_async) for rpc in calls)
    text = IMPORTS.format(
        iterators="AsyncIterator, Iterable" if is_async else "Iterable, Iterator",
        context="AbstractAsyncContextManager" if is_async else "AbstractContextManager",
        streams="headrace.run_stream" if is_async else "headrace.sync.blocking",
        modules=", ".join(sorted(set(re.findall(r"\b\w+_pb2\b", body)))),
    )
    return f'"""Made of the protos by packaging/client/make_stubs.py."""\n\n{text}\nclass Calls:\n{body}\n'


def write_call(rpc: Rpc, *, is_async: bool) -> str:
    assert rpc.client is not None
    arguments = list_arguments(rpc)
    words = ["self"]
    for argument in arguments:
        if argument.parameter.kind is Parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(write_argument(argument))
    returned = find_result(rpc)
    if rpc.descriptor.server_streaming:
        stream = STREAMS.get(rpc.descriptor.output_type.name)
        iterated = stream or f"{'Async' * is_async}Iterator[{returned}]"
        returned = f"Abstract{'Async' * is_async}ContextManager[{iterated}]"
    is_coroutine = is_async and not rpc.descriptor.server_streaming
    head = f"    {'async ' * is_coroutine}def {rpc.client.name}({', '.join(words)}) -> {returned}:"
    return f'{head}\n        """{write_comment(find_comment(rpc.descriptor.full_name))}"""'


def write_argument(argument: Argument) -> str:
    field, parameter = argument
    kind = find_type(field)
    if field.is_repeated:
        kind = f"Iterable[{kind}]"
    elif parameter.default is None:
        kind += " | None"
    default = "" if parameter.default is Parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {kind}{default}"


def find_result(rpc: Rpc) -> str:
    assert rpc.client is not None
    answer = rpc.descriptor.output_type
    if not rpc.client.returns:
        return name_message(answer) if answer.fields else "None"
    field = answer.fields_by_name[rpc.client.returns]
    return f"list[{find_type(field)}]" if field.is_repeated else find_type(field)


def find_type(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return name_message(field.message_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "bytes"
    return TYPES.get(field.cpp_type, "int")


def name_message(message: Descriptor) -> str:
    return f"{Path(message.file.name).stem}_pb2.{message.name}"


def write_comment(text: str) -> str:
    """Return a comment as a docstring; lines that begin with a subject such as `Errors:` stay lines of their own."""
    paragraphs: list[str] = []
    for paragraph in text.split("\n\n"):
        items = re.split(r"\n(?=[A-Z][\w ]*: )", paragraph)
        paragraphs.append("\n".join(textwrap.fill(" ".join(item.split()), WIDTH) for item in items))
    lines = "\n\n".join(paragraphs).replace("\\", "\\\\").replace('"""', "'''")
    return lines.replace("\n", "\n        ").replace("\n        \n", "\n\n") + ("\n        " if "\n" in lines else "")


def main() -> None:
    for path, is_async in ((PACKAGE / "calls.pyi", True), (PACKAGE / "sync" / "calls.pyi", False)):
        ruff = [Path(sys.executable).with_name("ruff"), "format", "--stdin-filename", path, "-"]
        text = subprocess.run(
            ruff, input=write_stubs(is_async=is_async), capture_output=True, text=True, check=True
        ).stdout
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
