"""Derives the arguments of client methods from the contract: they are fields of the request."""

from __future__ import annotations

from inspect import Parameter
from typing import NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from headrace.contract import Rpc
from headrace.v1 import common_pb2

_PAGING = {"page_size", "page_token"}
"""Request fields set by the call itself when it fetches all pages."""


class Argument(NamedTuple):
    """An argument of a client method, and the request field that it sets."""

    field: FieldDescriptor
    parameter: Parameter


def list_arguments(rpc: Rpc) -> list[Argument]:
    """Return the arguments of a client method in order, keyword-only ones last."""
    call = rpc.client or common_pb2.ClientCall()
    fields = {field.name: field for field in rpc.descriptor.input_type.fields}
    by_position = [*call.required, *call.optional]
    by_name = [name for name in fields if name not in {*by_position, *(_PAGING if call.all_pages else ())}]
    rules = {name: field.GetOptions().Extensions[common_pb2.rules] for name, field in fields.items()}
    required = {*call.required, *(name for name in by_name if rules[name].required)}
    arguments: list[Argument] = []
    for name in [*by_position, *by_name]:
        field = fields[name]
        kind = Parameter.POSITIONAL_OR_KEYWORD if name in by_position else Parameter.KEYWORD_ONLY
        default = () if field.is_repeated else None if field.has_presence else field.default_value
        parameter = Parameter(
            call.names.get(name, name), kind, default=Parameter.empty if name in required else default
        )
        arguments.append(Argument(field, parameter))
    return arguments
