"""headrace data: export, erase and hold users' data."""

from __future__ import annotations

import asyncio
import os
import sys
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.command import CommandGroup
from headrace.cli.facade.exit_codes import StreamCut
from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.answers import json_option, list_rows, show_message, show_request, show_row
from headrace.cli.run_view.tables import Column, print_message
from headrace.v1 import data_pb2

LOOK_S = 1.0
"""How often an erasure is looked at that is waited for."""


def _name_owner(message: data_pb2.Erasure | data_pb2.Hold) -> str:
    if isinstance(message, data_pb2.Hold) and message.chat_id:
        return f"chat {message.chat_id}"
    return f"user {message.user}" if message.user else f"tenant {message.tenant}"


HOLD_COLUMNS: tuple[Column, ...] = (
    "hold_id:id",
    ("of", _name_owner),
    ("state", lambda hold: f"released by {hold.released_by}" if hold.released_at else "in force"),
    *("placed_at", "placed_by:by", "reason"),
)


@click.group(cls=CommandGroup)
def data() -> None:
    """Export, erase and hold the data of users."""


@data.command()
@click.option("--user", default="", help="Export the data of this user; needs the scope admin. Default: your own.")
@click.option("--output", type=click.Path(path_type=Path), help="File to write. Default: standard output.")
def export(user: str, output: Path | None) -> None:
    """Export all data of a user as a tar archive.

    Its last entry is manifest.json.
    """
    if output is None and sys.stdout.isatty():
        raise click.UsageError("an archive is nothing for a terminal: give --output FILE")
    with _open_output(output) as file:
        asyncio.run(_write_archive(user, file))
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


async def _write_archive(user: str, file: BinaryIO) -> None:
    request = data_pb2.ExportDataRequest(user=user)
    async with FacadeClient() as facade, facade.download(request) as pieces:
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
@click.option("--user", default="", help="Erase the data of this user.")
@click.option("--tenant", default="", help="Erase all data of this tenant, which must be your own.")
@click.option("--reason", default="", help="Reason, such as the number of a ticket.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--wait/--no-wait", default=True, help="Wait for the receipt.")
def erase(user: str, tenant: str, reason: str, yes: bool, wait: bool) -> None:
    """Erase the data of a user, or of the whole tenant.

    Shows the receipt.
    """
    if bool(user) == bool(tenant):
        raise click.UsageError("give --user or --tenant, and not both")
    owner = f"user {user}" if user else f"tenant {tenant}"
    if not yes:
        click.confirm(f"Permanently erase all data of {owner}?", abort=True)
    asyncio.run(_erase(data_pb2.EraseDataRequest(user=user, tenant=tenant, reason=reason), wait=wait))


async def _erase(request: data_pb2.EraseDataRequest, *, wait: bool) -> None:
    async with FacadeClient() as facade:
        erasure: data_pb2.Erasure = (await facade.send(request)).erasure
        shown = ""
        while wait and erasure.state != "done":
            await asyncio.sleep(LOOK_S)
            erasure = (await facade.send(data_pb2.GetErasureRequest(erasure_id=erasure.erasure_id))).erasure
            if erasure.problem not in ("", shown):
                shown = erasure.problem
                click.echo(f"waits: {shown}", err=True)
    print_message(erasure)


@data.command()
@json_option
@click.argument("erasure_id", required=False)
def erasures(erasure_id: str | None) -> None:
    """List erasures, or show the receipt of one."""
    if erasure_id is not None:
        show_request(data_pb2.GetErasureRequest(erasure_id=erasure_id), show_message())
    else:
        columns = ("erasure_id:id", "state", ("of", _name_owner), "requested_at", "reason")
        show_request(data_pb2.ListErasuresRequest(), list_rows(*columns))


add_command(data, "hold", "DataService/PlaceHold", show_row(*HOLD_COLUMNS), arguments="")
add_command(data, "holds", "DataService/ListHolds", list_rows(*HOLD_COLUMNS))
add_command(data, "release", "DataService/ReleaseHold", show_row(*HOLD_COLUMNS), about="End a hold.")
