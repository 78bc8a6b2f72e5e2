"""headrace gates export and verify: who has done what at gates, as lines that nobody changes unseen."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TextIO

import click
import msgspec

from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.chain_report import print_report, refusing_other_files
from headrace.hash_chain import verify_lines

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]


class _Frame(msgspec.Struct, frozen=True):
    """A frame of GET /api/gates/export."""

    line: str


class _Line(msgspec.Struct, frozen=True):
    step: str
    hash: str
    count: int = 0


@click.command()
@url_option
@click.option("--chat", "chat_id", help="Only this chat; without it all of the tenant (the scope operate).")
@click.option("--since", type=click.DateTime(_TIMES), help="Only what was committed then or later, in local time.")
@click.option("--before", type=click.DateTime(_TIMES), help="Only what was committed before.")
@click.option("--content", is_flag=True, help="With arguments, notes and payloads (the scope read_content).")
@click.option("--output", type=click.File("w", "utf-8", lazy=True), default="-", help="The file; else standard output.")
def export(
    url: str, chat_id: str | None, since: datetime | None, before: datetime | None, content: bool, output: TextIO
) -> None:
    """Write each step of gates and grants as a line of JSON, in order, in a hash chain that `verify` checks.

    How many there are, and the hash of the last line, is said on standard error: kept elsewhere, it proves that the
    file is this one.
    """
    wanted = {"chatId": chat_id} if chat_id else {}
    for name, time in (("since", since), ("before", before)):
        if time is not None:
            wanted[name] = str(round(time.timestamp() * 1000))
    if content:
        wanted["withContent"] = "true"
    asyncio.run(_write_export(url, wanted, output))


async def _write_export(url: str, wanted: dict[str, str], output: TextIO) -> None:
    async with FacadeClient(url) as facade, facade.watch("/api/gates/export", **wanted) as frames:
        async for frame in frames:
            text = msgspec.json.decode(frame, type=_Frame).line
            output.write(text + "\n")
            line = msgspec.json.decode(text, type=_Line)
            if line.step == "end":
                output.flush()
                click.echo(f"{line.count} steps, the last hash is {line.hash}", err=True)
                return


@click.command()
@click.argument("file", type=click.File("r", "utf-8"))
@click.option("--hash", "known_hash", help="The hash of the last line, as it was kept elsewhere.")
def verify(file: TextIO, known_hash: str | None) -> None:
    """Check FILE, which `export` wrote, and name the first line that was changed, removed or swapped."""
    with refusing_other_files():
        report = verify_lines(line.rstrip("\n") for line in file)
    print_report(report, known_hash, "file")
