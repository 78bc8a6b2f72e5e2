"""Defines the single message from the service to the supervisor.

Standard library only, and no dataclasses, which would take a quarter of its start.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

READY, GO = b"r", b"g"
"""The supervisor reports that the command is confined and ready; the service lets it begin, on the same link."""


HOME_PARENT = "/tmp"

SHARED_MEMORY = "/dev/shm"
"""Where the C library puts semaphores and shared memory, which Python's multiprocessing needs."""


class Limits(NamedTuple):
    """Limits of each process of the command, enforced by the kernel's rlimits, and of the command as a whole, by the
    supervisor."""

    cpu_s: int = 300
    memory_bytes: int = 4 * 1024**3
    """Private memory that the process may write."""

    address_bytes: int = 256 * 1024**3
    """Address space, which bounds shared memory as well; interpreters reserve much more than they use: Node 10 GiB for
    each memory of WebAssembly."""

    file_bytes: int = 512 * 1024**2
    processes: int = 256
    """Processes and threads of the command together, counted by the supervisor (notifications.py)."""

    open_files: int = 512

    home_bytes: int = 1024**3
    """Room of the private home, which is in memory if there are namespaces."""

    home_files: int = 50_000

    shared_bytes: int = 64 * 1024**2
    """Room of shared memory, which a command has only if there are namespaces: else it is the whole machine's."""


class Space(NamedTuple):
    """Room of the working directory, watched by the supervisor (space_watch.py)."""

    bytes_max: int
    files_max: int

    is_full: bool = False
    """Whether it already exceeds a limit; the command may then run until it exceeds its initial size."""

    used_bytes: int = 0
    """Bytes in it before the command begins."""

    reserve_bytes: int = 0
    """Room of its file system that commands must leave; with less, a command that adds much is killed."""


class Policy(NamedTuple):
    """The command and its rights; paths are absolute, and unlisted ones cannot be opened."""

    command: tuple[str, ...]

    folder: str
    """Working directory; readable and writable."""

    input: str = ""

    environment: tuple[tuple[str, str], ...] = ()
    """Variables in addition to those of every command."""

    readable: tuple[str, ...] = ()

    writable: tuple[str, ...] = ()

    home_parent: str = HOME_PARENT
    """Parent of the private home, which exists as long as the command."""

    mark: str = "headrace"
    """Prefix of the home's name, and argument of the supervisor, by which leftovers.py finds a service's leftovers."""

    confined: bool = True
    """False without Landlock and seccomp, if the operator has allowed that."""

    landlock_abi_max: int | None = None
    """The newest Landlock ABI to use, as if the kernel had no later one; for tests of older ones."""

    namespaces: bool = False

    network: bool = False
    """Whether the command reaches the network through network_proxy.py; requires namespaces."""

    channel: int | None = None
    """Descriptor of the service that the command gets under the same number."""

    space: Space | None = None
    """None: its writes are not watched."""

    timeout_s: float = 120.0
    limits: Limits = Limits()

    def to_json(self) -> str:
        return json.dumps(self._asdict())


def parse_policy(text: str) -> Policy:
    values: dict[str, Any] = json.loads(text)
    for name in ("command", "readable", "writable"):
        values[name] = tuple(values[name])
    values["environment"] = tuple((name, value) for name, value in values["environment"])
    values["space"] = values["space"] and Space(*values["space"])
    values["limits"] = Limits(*values["limits"])
    return Policy(**values)
