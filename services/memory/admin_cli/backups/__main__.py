"""`python -m services.memory.admin_cli.backups`: backups to and from a bucket."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.run_view.tables import print_records
from headrace.errors import HeadraceError
from services.memory.admin_cli.verify import print_line
from services.memory.storage.s3 import backups
from services.memory.storage.s3.bucket import Bucket
from services.memory.storage.s3.requests import open_requests
from services.memory.storage.s3.settings import Place, S3Settings, parse_place
from services.runtime.process import config as settings
from services.runtime.process import logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    s3: S3Settings = S3Settings()


def main() -> None:
    arguments = _build_parser().parse_args()
    # Settings of others, such as the database or the service, are ignored.
    env = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    try:
        config = settings.load_settings(Config, "BACKUPS", env)
        config.s3.check()
        logs.configure_logging("WARNING", "backups")
        asyncio.run(run_command(config.s3, arguments))
    except (backups.BackupProblem, settings.ConfigError, HeadraceError, OSError, ValueError) as error:
        sys.exit(str(error))


async def run_command(s3: S3Settings, arguments: argparse.Namespace) -> None:
    place: Place = arguments.place
    async with open_requests(place, s3, backups.LIMITS) as requests:
        await _COMMANDS[arguments.command](Bucket(requests, place.prefix), arguments)


async def _put(bucket: Bucket, arguments: argparse.Namespace) -> None:
    contents = await backups.put_backup(bucket, arguments.file)
    print_line(f"{arguments.file.name}: {contents.size_bytes} bytes kept")
    if arguments.keep:
        for name in await backups.delete_older(bucket, arguments.keep):
            print_line(f"{name}: deleted")


async def _get(bucket: Bucket, arguments: argparse.Namespace) -> None:
    contents = await backups.get_backup(bucket, arguments.name, arguments.file)
    print_line(f"{arguments.file}: {contents.size_bytes} bytes, as they were put")


async def _list(bucket: Bucket, arguments: argparse.Namespace) -> None:
    rows = [
        (
            backup.name,
            backup.contents.size_bytes if backup.contents else 0,
            "complete" if backup.contents else "incomplete",
        )
        for backup in await backups.list_backups(bucket)
    ]
    print_records(("name", "bytes", "state"), rows, is_json=arguments.json)


_COMMANDS = {"put": _put, "get": _get, "list": _list}


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headrace backups", description="Backups in a bucket.")
    commands = parser.add_subparsers(dest="command", required=True)
    put = commands.add_parser("put", help="keep a file under its name")
    put.add_argument("file", type=Path)
    put.add_argument("place", type=_parse_url)
    put.add_argument("--keep", type=_parse_count, default=0, help="delete all but so many")
    get = commands.add_parser("get", help="write one to a file")
    get.add_argument("place", type=_parse_url)
    get.add_argument("name")
    get.add_argument("file", type=Path)
    listing = commands.add_parser("list", help="list the backups")
    listing.add_argument("place", type=_parse_url)
    listing.add_argument("--json", action="store_true", help="print each as JSON")
    return parser


def _parse_url(text: str) -> Place:
    try:
        return parse_place(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _parse_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1 to 10000")
    return int(text)


if __name__ == "__main__":
    main()
