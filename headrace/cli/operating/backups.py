"""headrace backups: files of deploy/backup into a bucket, and out of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from headrace.cli.facade.command import CommandGroup


@click.group(cls=CommandGroup)
def backups() -> None:
    """Keep backups in a bucket, list them and get them back.

    A bucket is s3://bucket or s3://bucket/prefix, of AWS or of any store that speaks S3. AWS_ENDPOINT_URL, AWS_REGION,
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY configure the access.
    """


@backups.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("bucket")
@click.option("--keep", type=click.IntRange(1, 10_000), help="Keep only this number of backups, the last ones by name.")
def put(file: Path, bucket: str, keep: int | None) -> None:
    """Store a file in a bucket.

    It is stored under its name, in pieces with checksums. An interrupted upload does not count as a backup.
    """
    _run("put", *(["--keep", str(keep)] if keep else []), "--", str(file), bucket)


@backups.command("list")
@click.argument("bucket")
def list_backups(bucket: str) -> None:
    """List the backups in a bucket, with their sizes."""
    _run("list", "--", bucket)


@backups.command()
@click.argument("bucket")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
def get(bucket: str, name: str, file: Path) -> None:
    """Write a backup from a bucket to a file.

    The file is created only when every piece has the checksum of its upload.
    """
    _run("get", "--", bucket, name, str(file))


def _run(*arguments: str) -> NoReturn:
    """Become the memory service's own command: this package imports no service."""
    os.execv(sys.executable, [sys.executable, "-m", "services.memory.admin_cli.backups", *arguments])
