"""`python -m services.memory.migration [partition]`: brings the database's tables to this version, and exits.

It runs before the services of a new version, so that no probe limits its time; they find nothing left to do. With
`partition` it also partitions the large ones (`headrace database partition`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from functools import partial

from headrace.errors import HeadraceError
from services.memory.config import Config
from services.memory.storage.postgres.connection.pool import Limits, open_database
from services.memory.storage.postgres.engine import migrate_database
from services.memory.storage.postgres.partitions import partition_tables
from services.runtime.ending import WRONG_CONFIGURATION, CannotServe
from services.runtime.process import logs
from services.runtime.process.config import ConfigError, load_settings


async def migrate(config: Config, *, partitions: bool) -> None:
    """Bring the tables of the database in `config` to this version; with `partitions`, also to the partitioned form.

    Raises:
        OSError: The database cannot be reached.
        CannotServe: The tables are of a later version.
    """
    limits = Limits(config.database_connections_max, config.database_statement_timeout_s)
    async with open_database(config.database_url, limits) as database:
        await migrate_database(database)
        if partitions:
            await database.run(partial(partition_tables, partial(print, flush=True)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="headrace database")
    parser.add_argument("command", nargs="?", choices=["partition"])
    partitions = parser.parse_args().command is not None
    try:
        config = load_settings(Config, "MEMORY", os.environ)
    except ConfigError as error:
        sys.exit(str(error))
    logs.configure_logging("INFO", "memory")
    if not config.database_url:
        sys.exit("HEADRACE_DATABASE_URL: expected the database, as files have no tables")
    try:
        asyncio.run(migrate(config, partitions=partitions))
    except CannotServe as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(WRONG_CONFIGURATION)
    except (HeadraceError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
