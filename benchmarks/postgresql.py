"""A local PostgreSQL server for benchmarks and tests, with its data and socket in a folder.

PostgreSQL refuses to run as root, so root runs it as an unprivileged user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_S = 30.0

FAST = ("-c", "fsync=off", "-c", "full_page_writes=off")
"""Options for tests in which no machine fails. Commits are still stored in the order of their acknowledgements."""


def programs() -> Path | None:
    """Return the folder of the newest PostgreSQL on this machine; None if there is none."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if packaged:
        return packaged[-1].parent
    found = shutil.which("postgres")
    return Path(found).parent if found else None


class Server:
    """A PostgreSQL server that may be killed and restarted over the same folder."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://headrace@/{database}?host={self.folder}"

    def start(self) -> None:
        """Start the server; it accepts connections when this returns."""
        ready = [str(program("pg_isready")), "-q", "-h", str(self.folder), "-U", "headrace", "-d", "postgres"]
        until = time.monotonic() + START_S
        while subprocess.run(ready, check=False).returncode != 0:
            assert time.monotonic() < until, (self.folder / "log").read_text()
            # It refuses to start while processes of a killed server still exist.
            if self._process is None or self._process.poll() is not None:
                self._process = self._started()
            time.sleep(0.05)

    def _started(self) -> subprocess.Popen[bytes]:
        listen = ("-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}")
        command = [str(program("postgres")), "-D", str(self.folder / "data"), *listen, *self._options]
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen([*unprivileged(), *command], stdout=log, stderr=log, start_new_session=True)

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"d{uuid.uuid4().hex}"
        subprocess.run([str(program("createdb")), "-h", str(self.folder), "-U", "headrace", name], check=True)
        return self.url(name)

    def kill(self) -> None:
        """Kill all of its processes at once, as a machine failure would."""
        for pid in self.list_processes():
            with suppress(ProcessLookupError):  # it has already ended
                os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def list_processes(self) -> list[int]:
        """Return the ids of its processes, including one per connection."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [self._process.pid, *map(int, children)]

    def stop(self) -> None:
        """Stop the server without waiting for its clients."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(START_S)


@contextmanager
def running(*options: str) -> Generator[Server]:
    """Run a new PostgreSQL server inside the block."""
    with new_folder() as folder:
        make_data(folder)
        server = Server(folder, options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def new_folder() -> Generator[Path]:
    """Create an empty folder for the block, owned by the user that runs PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="headrace-pg-", ignore_cleanup_errors=True) as name:
        give_away(Path(name))
        yield Path(name)


def give_away(folder: Path) -> None:
    """Make the user that runs PostgreSQL the owner of a folder."""
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)


def make_data(folder: Path) -> None:
    """Initialise the data of a new server in a folder."""
    make = [str(program("initdb")), "-D", str(folder / "data"), "-U", "headrace", "-A", "trust", "-N"]
    subprocess.run(
        [*unprivileged(), *make, "-E", "UTF8", "--locale=C.UTF-8"], check=True, stdout=subprocess.DEVNULL, cwd="/"
    )


def program(name: str) -> Path:
    """Return the path of one of PostgreSQL's programs."""
    folder = programs()
    assert folder is not None
    return folder / name


def unprivileged() -> list[str]:
    """Return the command prefix that drops root privileges; empty if we are not root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
