"""Defines the one message from the service to the supervisor.

Standard library only, and no dataclasses, which would take a quarter of its start.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

READY, GO = b"r", b"g"
"""The supervisor says that the command is confined and would begin; the service lets it, on the same link."""


HOME_PARENT = "/tmp"


class Limits(NamedTuple):
    """Limits of each process of the command, by the kernel's rlimits, and of what the supervisor counts."""

    cpu_s: int = 300
    memory_bytes: int = 4 * 1024**3
    """Interpreters reserve much more address space than they use."""

    file_bytes: int = 512 * 1024**2
    processes: int = 256
    """Processes and threads of the command together, which the supervisor counts (notifications.py)."""

    open_files: int = 512

    home_bytes: int = 1024**3
    """Room of the private home, which lies in memory where there are namespaces."""

    home_files: int = 50_000


class Space(NamedTuple):
    """Room of the working directory, which the supervisor watches (space_watch.py)."""

    bytes_max: int
    files_max: int

    is_full: bool = False
    """Whether it is over a limit already; the command may then run until there is more than at its start."""

    used_bytes: int = 0
    """Bytes that are in it before the command begins."""

    reserve_bytes: int = 0
    """Room of its file system that commands leave: with less, one that adds much is killed."""


class Policy(NamedTuple):
    """The command and its rights; paths are absolute, and one that is not listed cannot be opened."""

    command: tuple[str, ...]

    folder: str
    """Working directory; readable and writable."""

    input: str = ""

    environment: tuple[tuple[str, str], ...] = ()
    """Variables beside those that every command has."""

    readable: tuple[str, ...] = ()

    writable: tuple[str, ...] = ()

    home_parent: str = HOME_PARENT
    """Folder of a private home, which lives as long as the command."""

    mark: str = "headrace"
    """Begin of the home's name, and argument of the supervisor, by which leftovers.py finds what a service has left."""

    confined: bool = True
    """False without Landlock and seccomp, where the operator has allowed it."""

    landlock_abi_max: int | None = None
    """The newest ABI of Landlock to be used, as if the kernel had none later; for trials of what older ones give."""

    namespaces: bool = False

    network: bool = False
    """Whether the command reaches the network through network_proxy.py; needs namespaces."""

    channel: int | None = None
    """Descriptor of the service that the command gets under the same number."""

    space: Space | None = None
    """None: what it writes is not watched."""

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
