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
    help="Folder of the services' data. Default: HEADRACE_DATABASE_URL, else HEADRACE_DATA_DIR, else .data.",
)


@click.command("export")
@data_dir_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for the files. Default: one chat is written to standard output.",
)
@click.argument("chat_ids", nargs=-1)
def export_chats(data_dir: Path | None, output: Path | None, chat_ids: tuple[str, ...]) -> None:
    """Export stored chats as JSON lines.

    Includes everything that belongs to them. Without CHAT_IDS all chats are exported.
    """
    _run_admin_tool(data_dir, "export", *(["--output", str(output)] if output else []), "--", *chat_ids)


@click.command("import")
@data_dir_option
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def import_chats(data_dir: Path | None, paths: tuple[Path, ...]) -> None:
    """Import chats from files or folders.

    Reads exported chats, Chat Memory V3 and V3.1, and Blade-style entries.
    """
    _run_admin_tool(data_dir, "import", "--", *map(str, paths))


@click.command("prune")
@data_dir_option
@click.option("--older-than", required=True, metavar="AGE", help="Time since the last use: 7d, 12h or 30m.")
def prune_chats(data_dir: Path | None, older_than: str) -> None:
    """Delete stored chats that have not been used for a time."""
    _run_admin_tool(data_dir, "prune", "--older-than", older_than)


@click.command("reindex")
@data_dir_option
def reindex_chats(data_dir: Path | None) -> None:
    """Rebuild the index of stored chats from their logs."""
    _run_admin_tool(data_dir, "reindex")


@click.command("move-blobs")
@data_dir_option
def move_blobs(data_dir: Path | None) -> None:
    """Move the files of stored chats to a bucket.

    HEADRACE_MEMORY_BLOBS names the bucket. An interrupted move continues where it stopped.
    """
    _run_admin_tool(data_dir, "move-blobs")


@click.command("keys")
@data_dir_option
def list_data_keys(data_dir: Path | None) -> None:
    """List the data keys of tenants.

    Also says whether everything stored is encrypted with them. Services may be running.
    """
    _run_admin_tool(data_dir, "keys")


@click.command("rotate-keys")
@data_dir_option
@click.option("--tenant", "tenants", multiple=True, help="Only this tenant. Repeatable. Default: all tenants.")
def rotate_data_keys(data_dir: Path | None, tenants: tuple[str, ...]) -> None:
    """Create new data keys for tenants.

    Running services use them within 2 seconds, and re-encrypt the stored data in the background.
    """
    _run_admin_tool(data_dir, "rotate-keys", *(f"--tenant={tenant}" for tenant in tenants))


@click.command("reencrypt")
@data_dir_option
def reencrypt_chats(data_dir: Path | None) -> None:
    """Re-encrypt everything stored with the newest keys now.

    Decrypts it if the settings turn encryption off. An interrupted run continues where it stopped. Exit codes: 0 all is
    done, 1 something is left, and is named.
    """
    _run_admin_tool(data_dir, "reencrypt")


@click.command("verify")
@data_dir_option
@click.argument("chat_ids", nargs=-1)
def verify_chats(data_dir: Path | None, chat_ids: tuple[str, ...]) -> None:
    """Check stored chats for damage.

    Reads every line and blob of the chats, or of all chats, and changes nothing. Services may be running. Exit codes:
    0 nothing is damaged, 1 something is.
    """
    _run_admin_tool(data_dir, "verify", "--", *chat_ids)


def _run_admin_tool(data_dir: Path | None, *arguments: str) -> NoReturn:
    """Become the memory service's own command: this package imports no service."""
    folder = ["--data-dir", str(data_dir)] if data_dir else []
    os.execv(sys.executable, [sys.executable, "-m", "services.memory.admin_cli", *folder, *arguments])
