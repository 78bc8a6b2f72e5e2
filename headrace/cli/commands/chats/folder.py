"""Commands of `headrace chats` that work on the stored chats themselves.

They are those of a folder, which no service may own meanwhile unless it is verified or its keys are looked at, or of
HEADRACE_DATABASE_URL.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="What the services keep; else HEADRACE_DATABASE_URL or HEADRACE_DATA_DIR, else .data.",
)


@click.command("export")
@data_dir_option
@click.option("--output", type=click.Path(path_type=Path), help="A folder; without it one chat goes to the terminal.")
@click.argument("chat_ids", nargs=-1)
def export_chats(data_dir: Path | None, output: Path | None, chat_ids: tuple[str, ...]) -> None:
    """Write chats as JSON lines, with all that belongs to them; all chats when none is named."""
    _run_admin_tool(data_dir, "export", *(["--output", str(output)] if output else []), "--", *chat_ids)


@click.command("import")
@data_dir_option
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def import_chats(data_dir: Path | None, paths: tuple[Path, ...]) -> None:
    """Read chats: exported ones, Chat Memory V3 and V3.1, Blade-style entries; files, or folders of them."""
    _run_admin_tool(data_dir, "import", "--", *map(str, paths))


@click.command("prune")
@data_dir_option
@click.option("--older-than", required=True, metavar="AGE", help="7d, 12h or 30m.")
def prune_chats(data_dir: Path | None, older_than: str) -> None:
    """Delete chats that nobody has used for long."""
    _run_admin_tool(data_dir, "prune", "--older-than", older_than)


@click.command("reindex")
@data_dir_option
def reindex_chats(data_dir: Path | None) -> None:
    """Make the index of chats anew from their logs."""
    _run_admin_tool(data_dir, "reindex")


@click.command("move-blobs")
@data_dir_option
def move_blobs(data_dir: Path | None) -> None:
    """Put what chats have kept beside them so far into the bucket of HEADRACE_MEMORY_BLOBS.

    It may be killed, and goes on where it was.
    """
    _run_admin_tool(data_dir, "move-blobs")


@click.command("keys")
@data_dir_option
def list_data_keys(data_dir: Path | None) -> None:
    """List the data keys of tenants, and say whether all that is stored is encrypted with them.

    Services may be running.
    """
    _run_admin_tool(data_dir, "keys")


@click.command("rotate-keys")
@data_dir_option
@click.option("--tenant", "tenants", multiple=True, help="A tenant, more than once too; all without one.")
def rotate_data_keys(data_dir: Path | None, tenants: tuple[str, ...]) -> None:
    """Give tenants new data keys.

    Services that are running write with them within 2 seconds, and encrypt what there is anew in the background.
    """
    _run_admin_tool(data_dir, "rotate-keys", *(f"--tenant={tenant}" for tenant in tenants))


@click.command("reencrypt")
@data_dir_option
def reencrypt_chats(data_dir: Path | None) -> None:
    """Encrypt what is stored with the newest keys now, or decrypt it, as the settings say.

    It may be killed, and goes on where it was. Exits with 1 if something was left, which it names.
    """
    _run_admin_tool(data_dir, "reencrypt")


@click.command("verify")
@data_dir_option
@click.argument("chat_ids", nargs=-1)
def verify_chats(data_dir: Path | None, chat_ids: tuple[str, ...]) -> None:
    """Read every line and blob of the chats, all when none is named, and say what is not what was written.

    Nothing is changed, and services may be running. Exits with 1 if something is damaged.
    """
    _run_admin_tool(data_dir, "verify", "--", *chat_ids)


def _run_admin_tool(data_dir: Path | None, *arguments: str) -> NoReturn:
    """Become the memory service's own command: this package imports no service."""
    folder = ["--data-dir", str(data_dir)] if data_dir else []
    os.execv(sys.executable, [sys.executable, "-m", "services.memory.admin_cli", *folder, *arguments])
