"""Commands of `headrace chats` that work on the stored chats themselves.

Their folder must not belong to a running service, except to verify it or to look at its keys. Instead of a folder,
HEADRACE_DATABASE_URL may name a database.
"""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.service_commands import JSON, make_service_command

_PATH = click.Path(path_type=Path)

_CHAT_IDS = click.Argument(["chat_ids"], nargs=-1)

_COMMANDS: dict[str, tuple[str, list[click.Parameter]]] = {
    "export": (
        """Export stored chats as JSON lines.

        Includes everything that belongs to them. Without CHAT_IDS all chats are exported.""",
        [
            click.Option(
                ["--output"], type=_PATH, help="Folder for the files. Default: one chat is written to standard output."
            ),
            _CHAT_IDS,
        ],
    ),
    "import": (
        """Import chats from files or folders.

        Reads exported chats, Chat Memory V3 and V3.1, and Blade-style entries. A file that is no chat, or whose chat
        exists already, is reported at the end; the others are imported.""",
        [click.Argument(["paths"], nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))],
    ),
    "prune": (
        "Delete stored chats that have not been used for a time.",
        [click.Option(["--older-than"], required=True, metavar="AGE", help="Time since the last use: 7d, 12h or 30m.")],
    ),
    "reindex": ("Rebuild the index of stored chats from their logs.", []),
    "move-blobs": (
        """Move the files of stored chats to a bucket.

        HEADRACE_MEMORY_BLOBS names the bucket. An interrupted move continues where it stopped.""",
        [],
    ),
    "keys": (
        """List the data keys of tenants.

        Also says whether everything stored is encrypted with them. Services may be running.""",
        [JSON],
    ),
    "rotate-keys": (
        """Create new data keys for tenants.

        Running services use them within 2 seconds, and re-encrypt the stored data in the background.""",
        [click.Option(["--tenant"], multiple=True, help="Only this tenant. Repeatable. Default: all tenants.")],
    ),
    "reencrypt": (
        """Re-encrypt everything stored with the newest keys now.

        Decrypts it if the settings turn encryption off. An interrupted run continues where it stopped. Exit codes: 0
        all is done, 1 something is left, and is named.""",
        [],
    ),
    "verify": (
        """Check stored chats for damage.

        Reads every line and blob of the chats, or of all chats, and changes nothing. Services may be running. Exit
        codes: 0 nothing is damaged, 1 something is.""",
        [_CHAT_IDS],
    ),
}

_DATA_DIR = click.Option(
    ["--data-dir"],
    type=_PATH,
    help="Folder of the services' data. Default: HEADRACE_DATABASE_URL, else HEADRACE_DATA_DIR, else .data.",
)

FOLDER_COMMANDS = [
    make_service_command("services.memory.admin_cli", name, about, _DATA_DIR, *params)
    for name, (about, params) in _COMMANDS.items()
]
