"""A PostgreSQL with a synchronous standby that takes over when the primary dies."""

import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager

from benchmarks.postgresql import FAST, START_S, Server, new_folder, program, running, unprivileged

STANDBY = "standby"
"""By this name a primary knows its standby. With `*` a copy in the making would do, which is no standby yet."""

SOCKET = ".s.PGSQL.5432"

OPTIONS = (
    *FAST,
    *("-c", f"synchronous_standby_names={STANDBY}"),
    *("-c", "shared_buffers=16MB"),
    *("-c", "wal_keep_size=256MB"),  # for a standby that was down
    *("-c", "wal_retrieve_retry_interval=200ms"),
)

_NOW = "SELECT pg_current_wal_lsn()"
_HAS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND replay_lsn >= '{}'"


class Pair:
    """Two servers; which of them is which changes with each fail-over."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.primary = primary
        self.standby = standby
        self.ways = {primary.folder: standby.folder, standby.folder: primary.folder}
        """By a server's folder, the one in which it finds the other's socket."""

    def url(self, database: str = "postgres") -> str:
        """Of whichever takes writes."""
        folders = ",".join(str(folder) for folder in sorted(self.ways))
        return f"postgresql://headrace@/{database}?host={folders}&target_session_attrs=read-write"

    def promote(self) -> None:
        """Have the standby take the place of the primary, which is dead."""
        _run("pg_ctl", "promote", "-D", str(self.standby.folder / "data"), "-w", "-s")
        self.primary, self.standby = self.standby, self.primary

    def follow(self) -> None:
        """Make a standby of the server that is none any more, of a copy of the primary."""
        data, way = self.standby.folder / "data", self.ways[self.standby.folder]
        shutil.rmtree(data, ignore_errors=True)
        _run("pg_basebackup", "-D", str(data), "-h", str(way), "-U", "headrace", "-c", "fast", "--no-sync")
        (data / "standby.signal").touch()
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = 'host={way} user=headrace application_name={STANDBY}'\n")
        self.standby.start()
        self.wait()

    def wait(self) -> None:
        """Until the standby has what the primary has now."""
        now, until = self._ask(_NOW), time.monotonic() + START_S
        while self._ask(_HAS.format(now)) == "0":
            assert time.monotonic() < until, (self.standby.folder / "log").read_text()[-3000:]
            time.sleep(0.05)

    def _ask(self, query: str) -> str:
        command = [
            str(program("psql")),
            "-h",
            str(self.primary.folder),
            "-U",
            "headrace",
            "-d",
            "postgres",
            "-Atc",
            query,
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def pair() -> Generator[Pair]:
    """Run a primary inside the block, and a standby once `follow` is called; nothing is committed before that."""
    with running(*OPTIONS) as primary, new_folder() as folder:
        standby = Server(folder, OPTIONS)
        try:
            yield Pair(primary, standby)
        finally:
            standby.stop()


def _run(name: str, *arguments: str) -> None:
    subprocess.run([*unprivileged(), str(program(name)), *arguments], check=True, cwd="/")
