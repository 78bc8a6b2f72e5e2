"""headrace keys: API keys of the tenant's users and programs."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.answers import Show, list_rows, show_fields, show_message
from headrace.cli.run_view.printing import Instant


def _show_created(created: Any) -> None:
    for text in filter(None, (created.key.key_id, created.secret)):
        click.echo(text)
    if created.key.state == "unconfirmed":
        hint = f"It counts when {created.key.user} or another admin has confirmed it: headrace keys confirm"
        click.echo(hint, err=True)


keys = CommandGroup("keys", help="Create, list, change and revoke API keys.")

add_command(
    keys,
    "list",
    "KeyService/ListKeys",
    list_rows("key_id:id", "state", "user", "scopes", "expires_at", "credential", "name"),
)
add_command(
    keys,
    "create",
    "KeyService/CreateKey",
    Show(_show_created),
    make_flag("--service", "kind", "service", "The user is the account of a program."),
    click.Option(["--user"], required=True, help="User of the key: a person, or the account of a program."),
    about="Create a key.\n\nPrints its id, and its text, which is shown only once.",
    hidden="key_id",
)
add_command(
    keys,
    "confirm",
    "KeyService/ConfirmKey",
    show_fields("secret"),
    about="""Confirm a key that another admin has made.

    If it is your own, prints its new text, which is shown only once.""",
)
add_command(keys, "show", "KeyService/GetKey", show_message(), about="Show a key.")
add_command(
    keys,
    "update",
    "KeyService/UpdateKey",
    None,
    click.Option(
        ["--expires", "expires_at"], type=Instant(), help="When it expires, such as 2030-01-31, or 90d from now."
    ),
    click.Option(["--no-expiry", "expires_at"], flag_value=0, type=Instant(), help="It never expires."),
    click.Option(["--disable/--enable", "disabled"], default=None, help="Disable it for now, or enable it again."),
)
add_command(
    keys,
    "revoke",
    "KeyService/RevokeKey",
    about="Revoke keys permanently, on every replica within 5 s.",
    is_for_each=True,
)
add_command(keys, "suspend", "KeyService/SuspendUser")
add_command(keys, "release", "KeyService/ReleaseUser")
add_command(
    keys, "suspended", "KeyService/ListSuspendedUsers", list_rows("user", "suspended_at:since", "suspended_by:by")
)
