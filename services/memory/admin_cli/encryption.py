"""Data keys on the command line: list them, rotate them, and re-encrypt stored chats."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.cli.run_view.tables import print_records
from services.memory.admin_cli.verify import print_line
from services.memory.storage.encrypted.reencryption import run_pass
from services.memory.storage.files.data_keys import FOLDER, FileDataKeys

if TYPE_CHECKING:
    import argparse

    from services.memory.config import Config
    from services.memory.encryption.data_keys import DataKeys
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.engine import Engine


def add_commands(commands: Any) -> None:
    """Add the commands to argparse's sub-parsers, which have no public class name."""
    listing = commands.add_parser("keys", help="list the data keys of tenants, and whether everything is encrypted")
    listing.add_argument("--json", action="store_true", help="print each key as JSON")
    rotate = commands.add_parser("rotate-keys", help="give tenants new data keys; services write with them within 2 s")
    rotate.add_argument("--tenant", action="append", default=[], help="a tenant, more than once too; else all")
    commands.add_parser("reencrypt", help="encrypt what is stored with the newest keys, or decrypt it, now")


def open_folder_keys(config: Config) -> Keyring:
    """Open the keyring of a folder, which a service may own."""
    stored = FileDataKeys(config.logs_dir / FOLDER)
    return config.make_open_keys()(stored)


async def reencrypt(engine: Engine, arguments: argparse.Namespace) -> bool:
    report = await run_pass(engine.rewriting)
    for name, problem in report.failures:
        print_line(f"{name}: {problem}")
    if report.failed > len(report.failures):
        print_line(f"and {report.failed - len(report.failures)} more")
    print_line(f"{report.looked_at} chats and records, {report.rewritten} written anew, {report.failed or 'none'} left")
    return not report.failed


async def _list_keys(config: Config, arguments: argparse.Namespace) -> bool:
    async with _open_keys(config) as (keys, stored):
        listed = keys.list_keys()
        counts = Counter(key.tenant for key in listed)
        rows = [
            (
                key.tenant,
                key.version,
                f"{datetime.fromtimestamp(key.created_at // 1000, UTC):%FT%TZ}",
                counts[key.tenant],
            )
            for key in listed
            if key == keys.find_newest(key.tenant)
        ]
        print_records(("tenant", "version", "created", "kept"), rows, is_json=arguments.json)
        is_done = await asyncio.to_thread(stored.read_goal) == keys.goal
        how = "encrypted with these keys" if keys.encrypts else "decrypted"
        state = f"all that is stored is {how}" if is_done else f"not everything that is stored is {how} yet"
        print(state, file=sys.stderr if arguments.json else sys.stdout)
        return True


async def _rotate_keys(config: Config, arguments: argparse.Namespace) -> bool:
    async with _open_keys(config) as (keys, _):
        if not keys.encrypts:
            raise OSError("nothing is encrypted: HEADRACE_MEMORY_ENCRYPTION_KEYS names no master keys, or it is off")
        tenants: list[str] = arguments.tenant or sorted({key.tenant for key in keys.list_keys()})
        for tenant in tenants:
            if keys.find_newest(tenant) is None:
                raise OSError(f"tenant {tenant!r} has no key")
            key = await asyncio.to_thread(keys.rotate, tenant)
            print_line(f"{tenant}: version {key.version}")
        return True


KEY_COMMANDS: dict[str, Callable[[Config, argparse.Namespace], Awaitable[bool]]] = {
    "keys": _list_keys,
    "rotate-keys": _rotate_keys,
}
"""Commands that only need the keys, so the folder may belong to a running service."""


@asynccontextmanager
async def _open_keys(config: Config) -> AsyncGenerator[tuple[Keyring, DataKeys]]:
    open_keys = config.make_open_keys()
    if not config.database_url:
        folder_keys = FileDataKeys(config.logs_dir / FOLDER)
        yield await asyncio.to_thread(open_keys, folder_keys), folder_keys
        return
    # Imported only here: a folder does not need the driver.
    from services.memory.storage.postgres.connection.pool import Limits, open_database
    from services.memory.storage.postgres.encryption import PostgresDataKeys
    from services.memory.storage.postgres.engine import migrate_database

    limits = Limits(config.database_connections_max, config.database_statement_timeout_s)
    async with open_database(config.database_url, limits) as database:
        await migrate_database(database)
        stored = PostgresDataKeys(database)
        yield await asyncio.to_thread(open_keys, stored), stored
