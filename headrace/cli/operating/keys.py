"""headrace keys: API keys of the tenant's users and programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import Instant, format_time, print_table, print_text

SCOPES = ("ask", "answer", "operate", "read_content", "publish", "admin")

STATES = ("active", "unconfirmed", "disabled", "expired", "revoked")

_role_option = click.option("--role", "roles", multiple=True, help="Role of the user; again for more.")
_scope_option = click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="Again for more.")


class Key(msgspec.Struct, frozen=True, rename="camel"):
    """A key as GET /api/keys has it."""

    key_id: str
    name: str
    user: str
    state: str
    scopes: tuple[str, ...] = ()
    kind: str = "person"
    roles: tuple[str, ...] = ()
    created_at: int = 0
    created_by: str = ""
    expires_at: int = 0
    revoked_at: int = 0
    revoked_by: str = ""
    runs_max: int = 0
    requests_per_minute: int = 0
    credential: str = ""
    makers: tuple[str, ...] = ()
    confirmed_by: str = ""

    @property
    def row(self) -> list[str]:
        until = format_time(self.expires_at) if self.expires_at else "-"
        return [self.key_id, self.state, self.user, ",".join(self.scopes), until, self.credential, self.name]

    def show(self) -> None:
        words = {
            "id": self.key_id,
            "name": self.name,
            "user": f"{self.user} ({self.kind})",
            "state": self.state,
            "scopes": ", ".join(self.scopes),
            "roles": ", ".join(self.roles),
            "made": f"{format_time(self.created_at)} by {self.created_by}",
            "confirmed by": self.confirmed_by,
            "known to": ", ".join(self.makers),
            "expires": format_time(self.expires_at) if self.expires_at else "never",
            "revoked": f"{format_time(self.revoked_at)} by {self.revoked_by}" if self.revoked_at else "",
            "runs at once": str(self.runs_max or ""),
            "calls a minute": str(self.requests_per_minute or ""),
            "credential": self.credential,
        }
        for name, value in words.items():
            if value:
                print_text(f"{name + ':':16}{value}")


class _Suspended(msgspec.Struct, frozen=True, rename="camel"):
    """A user as GET /api/users/suspended has them."""

    user: str
    suspended_at: int = 0
    suspended_by: str = ""


class _Created(msgspec.Struct, frozen=True):
    key: Key
    secret: str = ""


def _limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that create and update share."""
    for option in (
        click.option("--rate", "requestsPerMinute", type=int, help="Calls a minute, over all replicas."),
        click.option("--runs", "runsMax", type=int, help="Live runs at once, over all replicas."),
        click.option("--expires", "expiresAt", type=Instant(), help="When it ends: 2030-01-31, or 90d from now."),
    ):
        command = option(command)
    return command


@click.group()
def keys() -> None:
    """Make, confirm, list, limit and revoke API keys; all but confirm needs the scope admin."""


@keys.command("list")
@url_option
@click.option("--user", help="Only those of this user.")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
def list_keys(url: str, user: str | None, state: str | None) -> None:
    """List keys, the oldest first: id, state, user, scopes, expiry, name in logs and budgets, name."""
    wanted = {name: value for name, value in (("user", user), ("state", state)) if value}
    found = msgspec.json.decode(make_request(url, lambda facade: facade.get("/api/keys", **wanted)), type=list[Key])
    print_table(["id", "state", "user", "scopes", "expires", "credential", "name"], [key.row for key in found])


@keys.command()
@url_option
@_role_option
@_scope_option
@_limit_options
@click.option("--user", required=True, help="Whose key it is: a person, or an account of a program.")
@click.option("--service", is_flag=True, help="The user is an account of a program.")
@click.argument("name")
def create(url: str, name: str, user: str, service: bool, roles: Any, scopes: Any, **limits: Any) -> None:
    """Make a key called NAME; print its id, and its text, which is shown this once."""
    body: dict[str, Any] = {"name": name, "user": user, "roles": roles, "scopes": scopes}
    body |= {"kind": "service"} if service else {}
    body |= {field: value for field, value in limits.items() if value is not None}
    created = msgspec.json.decode(make_request(url, lambda facade: facade.post("/api/keys", body)), type=_Created)
    click.echo(created.key.key_id)
    click.echo(created.secret)
    if created.key.state == "unconfirmed":
        click.echo(f"It counts when {user} or another admin has confirmed it: headrace keys confirm", err=True)


@keys.command()
@url_option
@click.argument("key_id")
def confirm(url: str, key_id: str) -> None:
    """Confirm a key that another admin has made. If it is your own, print its new text, which is shown this once."""
    data = make_request(url, lambda facade: facade.post("/api/key/confirm", {"keyId": key_id}))
    if secret := msgspec.json.decode(data, type=_Created).secret:
        click.echo(secret)


@keys.command()
@url_option
@click.argument("key_id")
def show(url: str, key_id: str) -> None:
    """Show a key."""
    data = make_request(url, lambda facade: facade.get("/api/key", keyId=key_id))
    msgspec.json.decode(data, type=Key).show()


@keys.command()
@url_option
@_role_option
@_scope_option
@_limit_options
@click.option("--no-roles", "noRoles", is_flag=True, default=None, help="The user has no roles any more.")
@click.option("--no-expiry", is_flag=True, help="It does not end by itself.")
@click.option("--disable/--enable", "disabled", default=None, help="Make it useless for now, or of use again.")
@click.option("--name", help="Another name.")
@click.argument("key_id")
def update(url: str, key_id: str, roles: Any, scopes: Any, no_expiry: bool, **fields: Any) -> None:
    """Change a key; what is not given stays as it is. A limit of 0 is none."""
    body = {"keyId": key_id, "roles": roles or None, "scopes": scopes or None} | fields
    body |= {"expiresAt": 0} if no_expiry else {}
    given = {name: value for name, value in body.items() if value is not None}
    make_request(url, lambda facade: facade.post("/api/key", given))


@keys.command()
@url_option
@click.argument("key_ids", nargs=-1, required=True)
def revoke(url: str, key_ids: tuple[str, ...]) -> None:
    """End keys for ever, on every replica within 5 seconds."""

    async def revoke_all(facade: FacadeClient) -> None:
        for key_id in key_ids:
            await facade.post("/api/key/revoke", {"keyId": key_id})

    make_request(url, revoke_all)


@keys.command()
@url_option
@click.argument("user")
def suspend(url: str, user: str) -> None:
    """Suspend a user: refuse them whatever credentials they have, cancel their runs, hold their schedules."""
    make_request(url, lambda facade: facade.post("/api/users/suspend", {"user": user}))


@keys.command()
@url_option
@click.argument("user")
def release(url: str, user: str) -> None:
    """Release a user who is suspended."""
    make_request(url, lambda facade: facade.post("/api/users/release", {"user": user}))


@keys.command()
@url_option
def suspended(url: str) -> None:
    """List the users who are suspended."""
    data = make_request(url, lambda facade: facade.get("/api/users/suspended"))
    rows = [
        [found.user, format_time(found.suspended_at), found.suspended_by]
        for found in msgspec.json.decode(data, type=list[_Suspended])
    ]
    print_table(["user", "since", "by"], rows)
