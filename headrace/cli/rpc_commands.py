"""Commands made of the contract: one RPC each, with arguments and options for the fields of its request."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import click
from google.protobuf.descriptor import FieldDescriptor

from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.run_view.answers import Show, json_option, show_answer
from headrace.cli.run_view.printing import Instant
from headrace.contract import RPCS, find_comment
from headrace.v1 import common_pb2

HIDDEN = ("page_token", "request_id")
"""Fields of requests that no option sets."""

COUNT = "Maximum number of items, 1 to 200. Default: 50."

NAMES = {
    "agent_key": "agent",
    "agent_keys": "agent",
    "chat_id": "chat",
    "expires_at": "expires",
    "keep_s": "keep",
    "limit": "count",
    "page_size": "count",
    "participants": "take-part",
    "requests_per_minute": "rate",
    "roles": "role",
    "runs_max": "runs",
    "scopes": "scope",
    "types": "type",
    "url": "target",  # --url is the facade's address
}
"""Options that are not named as their field."""

_PRIVATE_SCOPES = ("", "ask", "answer")
"""Scopes that a person's credential has."""


def add_command(
    group: click.Group | None,
    name: str,
    path: str,
    show: Show | None = None,
    *own_options: click.Option,
    about: str = "",
    arguments: str | None = None,
    hidden: str = "",
    fixed: dict[str, Any] | None = None,
    is_for_each: bool = False,
) -> click.Command:
    """Make a command that calls the RPC at `path`, such as KeyService/CreateKey, and shows the response.

    Arguments are the required fields of the request, or those that `arguments` names, optional ones in brackets; a list
    is the last one. Options are the other fields but those in `hidden`; an option in `own_options`, named as a field,
    replaces it. A command with `fixed` values of fields has no other options. With `is_for_each` the last
    argument is given several times, and the RPC is called for each. The help is `about`, else the proto's comment, and
    the scope that the RPC needs.
    """
    rpc = RPCS[f"/headrace.v1.{path}"]
    fields = {field.name: field for field in rpc.descriptor.input_type.fields if field.name not in HIDDEN}
    own = {option.name for option in own_options}
    required = [field for field in fields.values() if _rules(field).required and field.name not in own]
    named = [field.name for field in required] if arguments is None else arguments.split()
    positional = [fields[name.strip("[]")] for name in named]
    done = {*own, *(field.name for field in positional), *hidden.split()}
    others = [] if fixed else [field for field in fields.values() if field.name not in done]
    each = positional[-1].name if is_for_each else ""

    def run(**values: Any) -> None:
        request = {name: value for name, value in values.items() if value not in (None, ())} | (fixed or {})
        requests = [request | {each: value} for value in request[each]] if each else [request]

        async def send_all() -> None:
            async with FacadeClient() as facade:
                for one in requests:
                    await show_answer(facade, rpc.request(**one), show)

        asyncio.run(send_all())

    params: list[click.Parameter] = []
    for field in positional:
        count = -1 if field.is_repeated or field.name == each else 1
        kind, is_required = _find_type(field), field.name in named
        params.append(click.Argument([field.name], nargs=count, required=is_required, type=kind))
    params += [*own_options, *map(_make_option, others)]
    summary, _, details = (about or _comment(rpc.descriptor.full_name)).partition(". ")
    about = about or "\n\n".join(filter(None, (summary.removesuffix(".") + ".", details)))
    if rpc.scope not in _PRIVATE_SCOPES and "scope" not in about:
        about += f"\n\nNeeds a credential with the scope {rpc.scope}."
    command = FacadeCommand(name, params=params, help=about, callback=run)
    if show is not None:
        json_option(command)
    if group is not None:
        group.add_command(command)
    return command


def make_flag(flag: str, field: str, value: Any, about: str) -> click.Option:
    """Make an option without a value that sets a field to `value`."""
    return click.Option([flag, field], flag_value=value, help=about)


def _make_option(field: FieldDescriptor) -> click.Option:
    name = f"--{_name_option(field)}"
    about = COUNT if field.name == "page_size" else _describe_field(field)
    kind = _find_type(field)
    if isinstance(kind, Instant):
        about = f"{about} Examples: 2030-01-31, 90d."
    if field.is_repeated:
        about = f"{about} Repeatable."
    if kind is click.BOOL and field.has_presence:
        name = f"{name}/--no-{name[2:]}"
    return click.Option(
        [name, field.name],
        type=kind,
        is_flag=kind is click.BOOL,
        default=None,
        multiple=field.is_repeated,
        required=_rules(field).required,
        help=about,
    )


def _find_type(field: FieldDescriptor) -> click.ParamType[Any]:
    if words := _rules(field).words:
        return click.Choice(list(words))
    if field.type == field.TYPE_BOOL:
        return click.BOOL
    if field.cpp_type == field.CPPTYPE_STRING:
        return click.STRING
    if field.name.endswith("_at"):
        return Instant()
    return click.IntRange(1, 200) if field.name == "page_size" else click.IntRange(min=0)


def _rules(field: FieldDescriptor) -> common_pb2.FieldRules:
    return field.GetOptions().Extensions[common_pb2.rules]


def _describe_field(field: FieldDescriptor) -> str:
    """Return the proto's comment of a field in the words of the command line, such as `Default: all.`"""
    text = _comment(field.full_name).replace(", Unix milliseconds", "").removeprefix("Whether to ")
    text = re.sub(
        r"[;.] absent: " if field.has_presence else r"[;.] (?:absent|empty|0): ", ". Default: ", text, flags=re.I
    )
    for name, option in NAMES.items():
        if "_" in name:
            text = re.sub(rf"\b{name}\b", f"--{option}", text)
    return text[:1].upper() + text[1:]


def _name_option(field: FieldDescriptor) -> str:
    return NAMES.get(field.name) or field.name.replace("_", "-")


_YOU = (("the caller has", "you have"), ("the caller's", "your"), ("the caller", "you"), ("The caller's", "Your"))


def _comment(name: str) -> str:
    """Return the first paragraph of the proto's comment of a field or an RPC; its caller is the reader."""
    text = " ".join(find_comment(name).partition("\n\n")[0].replace("`", "").split()).partition(" Changes nothing.")[0]
    for words, ours in _YOU:
        text = text.replace(words, ours)
    return text
