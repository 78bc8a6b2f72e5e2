"""headrace gates export and verify: the steps of gates and grants, as a hash chain."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TextIO

import click

from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.run_view.chain_report import print_report, refusing_other_files
from headrace.hash_chain import verify_lines
from headrace.v1 import gates_pb2

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]


@click.command(cls=FacadeCommand)
@click.option("--chat", "chat_id", help="Only gates of this chat. Default: all of the tenant; needs the scope operate.")
@click.option("--since", type=click.DateTime(_TIMES), help="Only steps at or after this local time.")
@click.option("--before", type=click.DateTime(_TIMES), help="Only steps before this local time.")
@click.option("--content", is_flag=True, help="Include arguments, notes and payloads; needs the scope read_content.")
@click.option(
    "--output", type=click.File("w", "utf-8", lazy=True), default="-", help="File to write. Default: standard output."
)
def export(chat_id: str | None, since: datetime | None, before: datetime | None, content: bool, output: TextIO) -> None:
    """Export the steps of gates and grants as a hash chain.

    Each step is a line of JSON. The number of steps and the hash of the last line are printed on standard error; keep
    the hash elsewhere to prove later that the file is unchanged.
    """
    since_ms, before_ms = (time and round(time.timestamp() * 1000) for time in (since, before))
    request = gates_pb2.ExportGatesRequest(chat_id=chat_id, since=since_ms, before=before_ms, with_content=content)
    asyncio.run(_write_export(request, output))


async def _write_export(request: gates_pb2.ExportGatesRequest, output: TextIO) -> None:
    async with FacadeClient() as facade, facade.watch(request) as frames:
        async for frame in frames:
            output.write(frame.line + "\n")
            line = json.loads(frame.line)
            if line["step"] == "end":
                output.flush()
                click.echo(f"{line['count']} steps, the last hash is {line['hash']}", err=True)
                return


@click.command()
@click.argument("file", type=click.File("r", "utf-8"))
@click.option("--hash", "known_hash", help="Hash of the last line, as export printed it.")
def verify(file: TextIO, known_hash: str | None) -> None:
    """Verify a file that export wrote.

    Names the first line that was changed, removed or swapped.
    """
    with refusing_other_files():
        report = verify_lines(line.rstrip("\n") for line in file)
    print_report(report, known_hash, "file")
