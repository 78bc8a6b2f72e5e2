"""headrace data: what is kept of people, exported, erased and held."""

from __future__ import annotations

import asyncio
import os
import sys
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.exit_codes import StreamCut
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_table, print_text

LOOK_S = 1.0
"""How often an erasure is looked at that is waited for."""


class Kept(msgspec.Struct, frozen=True):
    name: str
    what: str = ""
    reason: str = ""


class Erasure(msgspec.Struct, frozen=True, rename="camel"):
    """An erasure as GET /api/data/erasure has it."""

    erasure_id: str
    tenant: str
    state: str
    requested_by: str = ""
    requested_at: int = 0
    user: str = ""
    reason: str = ""
    done_at: int = 0
    erased: tuple[dict[str, Any], ...] = ()
    kept: tuple[Kept, ...] = ()
    problem: str = ""

    @property
    def whose(self) -> str:
        return f"user {self.user}" if self.user else f"tenant {self.tenant}"

    def show(self) -> None:
        print_text(f"erasure {self.erasure_id} of {self.whose}: {self.state}")
        print_text(f"asked {format_time(self.requested_at)} by {self.requested_by}  {self.reason}".rstrip())
        if self.done_at:
            click.echo(f"done {format_time(self.done_at)}")
        for item in self.erased:
            click.echo(f"  erased  {item['name']:<22} {item.get('count', 0)}")
        for kept in self.kept:
            click.echo(f"  kept    {kept.name:<22} {kept.what}  ({kept.reason})")
        if self.problem:
            print_text(f"waits: {self.problem}")


class Hold(msgspec.Struct, frozen=True, rename="camel"):
    """A hold as GET /api/data/holds has it."""

    hold_id: str
    tenant: str
    reason: str
    placed_by: str = ""
    placed_at: int = 0
    user: str = ""
    chat_id: str = ""
    released_by: str = ""
    released_at: int = 0

    @property
    def row(self) -> list[str]:
        what = f"chat {self.chat_id}" if self.chat_id else f"user {self.user}" if self.user else f"tenant {self.tenant}"
        state = f"released by {self.released_by}" if self.released_at else "in force"
        return [self.hold_id, what, state, format_time(self.placed_at), self.placed_by, self.reason]


@click.group()
def data() -> None:
    """Export, erase and hold what is kept of people."""


@data.command()
@url_option
@click.option("--user", default="", help="Another user's, which needs the scope admin; else the caller's own.")
@click.option("--output", type=click.Path(path_type=Path), help="The tar file; else standard output.")
def export(url: str, user: str, output: Path | None) -> None:
    """Write everything that is kept of a user as one tar archive, whose last entry is manifest.json."""
    if output is None and sys.stdout.isatty():
        raise click.UsageError("an archive is nothing for a terminal: give --output FILE")
    with _open_output(output) as file:
        asyncio.run(_write_archive(url, user, file))
    if output is not None:
        click.echo(f"{output}: {_check_archive(output)} entries", err=True)


@contextmanager
def _open_output(output: Path | None) -> Generator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
        return
    # For nobody else on the machine, and whole or not there.
    part = output.with_name(f"{output.name}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
        part.replace(output)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    finally:
        part.unlink(missing_ok=True)


async def _write_archive(url: str, user: str, file: BinaryIO) -> None:
    async with FacadeClient(url) as facade, facade.download("/api/data/export", user=user) as pieces:
        async for piece in pieces:
            file.write(piece)
    file.flush()


def _check_archive(path: Path) -> int:
    """Return the number of entries. Raises StreamCut where the manifest is missing."""
    try:
        with tarfile.open(path) as archive:
            names = archive.getnames()
    except tarfile.TarError as error:
        raise StreamCut(f"{path}: the archive was cut: {error}") from error
    if names[-1:] != ["manifest.json"]:
        raise StreamCut(f"{path}: the archive was cut: it does not end with manifest.json")
    return len(names)


@data.command()
@url_option
@click.option("--user", default="", help="Whose data.")
@click.option("--tenant", default="", help="All data of the tenant, whose name must be yours.")
@click.option("--reason", default="", help="A ticket's number.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", default=True, help="Whether to wait for the receipt.")
def erase(url: str, user: str, tenant: str, reason: str, yes: bool, wait: bool) -> None:
    """Erase what is kept of a user, or of the whole tenant, and show the receipt."""
    if bool(user) == bool(tenant):
        raise click.UsageError("give --user or --tenant, and not both")
    whose = f"user {user}" if user else f"tenant {tenant}"
    if not yes:
        click.confirm(f"Erase everything of {whose}, for ever?", abort=True)
    asyncio.run(_erase(url, {"user": user, "tenant": tenant, "reason": reason}, wait=wait))


async def _erase(url: str, body: dict[str, str], *, wait: bool) -> None:
    async with FacadeClient(url) as facade:
        erasure = msgspec.json.decode(await facade.post("/api/data/erase", body), type=Erasure)
        told = ""
        while wait and erasure.state != "done":
            await asyncio.sleep(LOOK_S)
            found = await facade.get("/api/data/erasure", erasureId=erasure.erasure_id)
            erasure = msgspec.json.decode(found, type=Erasure)
            if erasure.problem not in ("", told):
                told = erasure.problem
                click.echo(f"waits: {told}", err=True)
    erasure.show()


@data.command()
@url_option
@click.argument("erasure_id", required=False)
def erasures(url: str, erasure_id: str | None) -> None:
    """List the tenant's erasures, or show the receipt of one."""

    async def ask(facade: FacadeClient) -> msgspec.Raw:
        if erasure_id is None:
            return await facade.get("/api/data/erasures")
        return await facade.get("/api/data/erasure", erasureId=erasure_id)

    answer = make_request(url, ask)
    if erasure_id is not None:
        msgspec.json.decode(answer, type=Erasure).show()
        return
    found = msgspec.json.decode(answer, type=list[Erasure])
    rows = [[one.erasure_id, one.state, one.whose, format_time(one.requested_at), one.reason] for one in found]
    print_table(["id", "state", "of", "asked", "reason"], rows)


@data.command()
@url_option
@click.option("--user", default="", help="All that is kept of this user.")
@click.option("--chat", "chat_id", default="", help="One chat.")
@click.option("--tenant", default="", help="All data of the tenant, whose name must be yours.")
@click.option("--reason", required=True, help="The matter's name.")
def hold(url: str, user: str, chat_id: str, tenant: str, reason: str) -> None:
    """Place a hold: nothing of what it names is deleted or erased until it is released."""
    body = {"user": user, "chat": chat_id, "tenant": tenant, "reason": reason}
    _print_holds(
        [msgspec.json.decode(make_request(url, lambda facade: facade.post("/api/data/holds", body)), type=Hold)]
    )


@data.command()
@url_option
@click.option("--all", "include_ended", is_flag=True, help="Also those that were released.")
def holds(url: str, include_ended: bool) -> None:
    """List the tenant's holds."""
    wanted = {"all": "true"} if include_ended else {}
    answer = make_request(url, lambda facade: facade.get("/api/data/holds", **wanted))
    _print_holds(msgspec.json.decode(answer, type=list[Hold]))


@data.command()
@url_option
@click.argument("hold_id")
def release(url: str, hold_id: str) -> None:
    """End a hold."""
    answer = make_request(url, lambda facade: facade.post("/api/data/hold/release", {"holdId": hold_id}))
    _print_holds([msgspec.json.decode(answer, type=Hold)])


def _print_holds(found: list[Hold]) -> None:
    print_table(["id", "of", "state", "placed", "by", "reason"], [one.row for one in found])
