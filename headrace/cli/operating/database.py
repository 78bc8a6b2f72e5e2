"""headrace database: the tables of the deployment's PostgreSQL."""

from __future__ import annotations

import click

from headrace.cli.facade.command import CommandGroup
from headrace.cli.service_commands import make_service_command


@click.group(cls=CommandGroup)
def database() -> None:
    """Change how the PostgreSQL database of HEADRACE_DATABASE_URL keeps its tables."""


database.add_command(
    make_service_command(
        "services.memory.migration",
        "partition",
        """Partition the large tables while services use them.

        Tables are partitioned one after the other, into 16 parts by a hash of their chat or tenant. An interrupted
        command continues where it was when it is called again; once all is done, it says so and changes nothing.""",
    )
)
