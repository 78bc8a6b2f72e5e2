"""Answers of the facade: shown as text, or with --json as the HTTP API gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import click
from google.protobuf.message import Message

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.run_view.printing import print_shown
from headrace.cli.run_view.tables import Column, print_message, print_rows

_META = "headrace.json"


@dataclass(frozen=True, slots=True)
class Show:
    """How a response is shown as text."""

    print: Callable[[Any], None] | None
    """Prints a response, or the items of its list; None prints indented JSON."""
    is_list: bool = False
    """Whether the response is a list: each item is one line of JSON."""
    keep: Callable[[Any], bool] = lambda _: True
    """Whether an item is shown."""


def _store_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_META] = value


json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_store_json,
    help="Print the JSON of the HTTP API on one line; of a list, each item on its own line.",
)


def is_json_wanted() -> bool:
    """Return whether the running command has --json; a conversation's commands do not."""
    return click.get_current_context().meta.get(_META, False)


async def show_answer(facade: FacadeClient, request: Message, show: Show | None) -> Any:
    """Send a request, show the answer, and return it."""
    answer = await facade.fetch(request)
    if show is None:
        return answer.message
    is_json = is_json_wanted()
    if not show.is_list:
        if is_json or show.print is None:
            print_json(answer.data, indent=None if is_json else 2)
        else:
            show.print(answer.message)
        return answer.message
    field = next(field for field in answer.message.DESCRIPTOR.fields if field.is_repeated and field.message_type)
    values = answer.data if isinstance(answer.data, list) else answer.data.get(field.json_name, ())
    items = [*zip(values, getattr(answer.message, field.name), strict=True)]
    kept = [(value, item) for value, item in items if show.keep(item)]
    if is_json or show.print is None:
        print_json(*(value for value, _ in kept))
    else:
        show.print([item for _, item in kept])
    if getattr(answer.message, "next_page_token", ""):
        click.echo("there are more; --count shows more", err=True)
    return answer.message


def show_request(request: Message, show: Show) -> Any:
    """Send one request with its own client, show the answer, and return it."""
    return make_request(lambda facade: show_answer(facade, request, show))


def print_json(*values: Any, indent: int | None = None) -> None:
    for value in values:
        print_shown(json.dumps(value, ensure_ascii=False, indent=indent))


def list_rows(*columns: Column, keep: Callable[[Any], bool] = lambda _: True) -> Show:
    """Show the list in a response as a table of the items to keep."""
    return Show(lambda items: print_rows(items, columns), is_list=True, keep=keep)


def show_row(*columns: Column) -> Show:
    """Show the only message in a response as a table of one row."""
    return Show(lambda response: print_rows([_get_message(response)], columns))


SHOW_JSON = Show(None)


def show_message() -> Show:
    """Show the only message in a response, or the response, with all of its fields."""
    return Show(lambda response: print_message(_get_message(response)))


def show_fields(*paths: str) -> Show:
    """Show fields of a response, each on a line; those that are empty are left out."""

    def show(response: Any) -> None:
        for value in filter(None, (reduce(getattr, path.split("."), response) for path in paths)):
            click.echo(value)

    return Show(show)


def _get_message(response: Any) -> Any:
    messages = [field.name for field in response.DESCRIPTOR.fields if field.message_type and not field.is_repeated]
    return getattr(response, messages[0]) if len(messages) == 1 else response
