"""headrace audit: show, export and verify the audit log."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, TextIO

import click

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.run_view.answers import is_json_wanted, json_option
from headrace.cli.run_view.chain_report import print_report, refusing_other_files
from headrace.cli.run_view.printing import format_time, print_text
from headrace.hash_chain import LogReport, LogVerifier
from headrace.v1 import audit_pb2

LAST = "audit.exported"
"""The last line of an export: that it was made."""

_SHOWN = ("seq", "at", "event", "tenant", "by", "credential", "previous", "hash")


@click.group(cls=CommandGroup)
def audit() -> None:
    """Show, export and verify the tenant's audit log.

    Needs a credential with the scope admin.
    """


@audit.command()
@json_option
@click.option("--event", help="Only events of this name, such as key.made, or of this group, such as key.")
@click.option(
    "-n", "--lines", "count", type=click.IntRange(1, 500), default=20, help="Number of existing lines to show."
)
@click.option("-f", "--follow", is_flag=True, help="Then show new lines until Ctrl-C.")
def tail(event: str | None, count: int, follow: bool) -> None:
    """Show the latest lines of the log, oldest first."""
    asyncio.run(_show_tail(event, count, follow=follow))


async def _show_tail(event: str | None, count: int, *, follow: bool) -> None:
    async with FacadeClient() as facade:
        newest = await facade.send(audit_pb2.ListAuditRequest(page_size=count, event=event))
        last = 0
        if not is_json_wanted():
            click.echo(f"{'number':>6}  {'at':<16}  {'event':<18}  by  facts")
        for line in reversed(newest.lines):
            last = _show_line(line.line, event)
        if not follow:
            return
        async with facade.watch(audit_pb2.ExportAuditRequest(after_seq=last, follow=True)) as frames:
            async for frame in frames:
                _show_line(frame.line, event)


def _show_line(line: str, event: str | None) -> int:
    record: dict[str, Any] = json.loads(line)
    name = str(record.get("event", ""))
    if event is None or name == event or name.startswith(f"{event}."):
        facts = " ".join(f"{key}={value}" for key, value in record.items() if key not in _SHOWN)
        who = " ".join(filter(None, (str(record.get("by", "")), str(record.get("credential", "")))))
        text = f"{record['seq']:>6}  {format_time(record['at'])}  {name:<18}  {who or '-'}  {facts}".rstrip()
        print_text(line if is_json_wanted() else text)
    return int(record["seq"])


@audit.command()
@click.option("--after", "after_seq", type=click.IntRange(0), default=0, help="Only lines after this number.")
@click.option(
    "--output", type=click.File("w", "utf-8", lazy=True), default="-", help="File to write. Default: standard output."
)
def export(after_seq: int, output: TextIO) -> None:
    """Export the log's lines as they are stored.

    The last line records this export. The hash of the last line is printed on standard error; keep it elsewhere to
    prove later that the file is unchanged.
    """
    asyncio.run(_write_export(after_seq, output))


async def _write_export(after_seq: int, output: TextIO) -> None:
    verifier = LogVerifier(is_part=True)
    async with FacadeClient() as facade:
        before = await _verify_stored(facade)
        async with facade.watch(audit_pb2.ExportAuditRequest(after_seq=after_seq)) as frames:
            async for frame in frames:
                output.write(frame.line + "\n")
                verifier.add_lines([frame.line])
                line = json.loads(frame.line)
                if line["event"] == LAST and line["seq"] > before.last_seq:
                    break
    output.flush()
    report = verifier.finish()
    click.echo(f"{report.lines} lines up to number {report.last_seq}, the last hash is {report.last_hash}", err=True)
    if problem := before.problem or report.problem:
        raise click.ClickException(problem)


@audit.command()
@click.argument("file", type=click.File("r", "utf-8"), required=False)
@click.option("--hash", "known_hash", help="Hash of the last line, as export printed it.")
def verify(file: TextIO | None, known_hash: str | None) -> None:
    """Verify the stored log, or a file that export wrote.

    Names the first line that is wrong.
    """
    report = make_request(_verify_stored) if file is None else _verify_file(file)
    print_report(report, known_hash, "log")


async def _verify_stored(facade: FacadeClient) -> audit_pb2.VerifyAuditResponse:
    return await facade.send(audit_pb2.VerifyAuditRequest())


def _verify_file(file: TextIO) -> LogReport:
    verifier, last = LogVerifier(is_part=True), ""
    with refusing_other_files():
        for line in file:
            last = line.rstrip("\n")
            verifier.add_lines([last])
    report = verifier.finish()
    if not report.problem and json.loads(last or "{}").get("event") != LAST:
        problem = f"line {report.lines + 1} is missing: the file is cut, it does not end with {LAST}"
        return replace(report, problem=problem)
    return report
