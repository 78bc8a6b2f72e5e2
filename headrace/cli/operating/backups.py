"""headrace backups: files of deploy/backup into a bucket, and out of it."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.facade.command import CommandGroup
from headrace.cli.service_commands import JSON, make_service_command

_BUCKET = click.Argument(["bucket"])

_COMMANDS: dict[str, tuple[str, list[click.Parameter]]] = {
    "put": (
        """Store a file in a bucket.

        It is stored under its name, in pieces with checksums. An interrupted upload does not count as a backup.""",
        [
            click.Option(
                ["--keep"],
                type=click.IntRange(1, 10_000),
                help="Keep only this number of backups, the last ones by name.",
            ),
            click.Argument(["file"], type=click.Path(exists=True, dir_okay=False, path_type=Path)),
            _BUCKET,
        ],
    ),
    "list": ("List the backups in a bucket, with their sizes.", [JSON, _BUCKET]),
    "get": (
        """Write a backup from a bucket to a file.

        The file is created only when every piece has the checksum of its upload.""",
        [_BUCKET, click.Argument(["name"]), click.Argument(["file"], type=click.Path(path_type=Path))],
    ),
}


@click.group(cls=CommandGroup)
def backups() -> None:
    """Keep backups in a bucket, list them and get them back.

    A bucket is s3://bucket or s3://bucket/prefix, of AWS or of any store that speaks S3. AWS_ENDPOINT_URL, AWS_REGION,
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY configure the access.
    """


for _name, (_about, _params) in _COMMANDS.items():
    backups.add_command(make_service_command("services.memory.admin_cli.backups", _name, _about, *_params))
