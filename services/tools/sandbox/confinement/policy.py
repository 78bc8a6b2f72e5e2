"""Defines the one message from the service to the supervisor.

Standard library only, and no dataclasses, which would take a quarter of its start.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Limits(NamedTuple):
    """Limits of each process of the command, by the kernel's rlimits."""

    cpu_s: int = 300
    memory_bytes: int = 4 * 1024**3
    """Interpreters reserve much more address space than they use."""

    file_bytes: int = 512 * 1024**2
    processes: int = 256
    """Processes and threads of the command together, which the supervisor counts (processes.py)."""

    open_files: int = 512


class Policy(NamedTuple):
    """The command and its rights; paths are absolute, and one that is not listed cannot be opened."""

    command: tuple[str, ...]

    folder: str
    """Working directory; readable and writable."""

    input: str = ""

    readable: tuple[str, ...] = ()

    writable: tuple[str, ...] = ()

    home_parent: str = "/tmp"
    """Folder of a private home, which lives as long as the command."""

    confined: bool = True
    """False without Landlock and seccomp, where the operator has allowed it."""

    namespaces: bool = False

    network: bool = False
    """Whether the command reaches the network through network_proxy.py; needs namespaces."""

    channel: int | None = None
    """Descriptor of the service that the command gets under the same number."""

    timeout_s: float = 120.0
    limits: Limits = Limits()

    def to_json(self) -> str:
        return json.dumps(self._asdict())


def parse_policy(text: str) -> Policy:
    values: dict[str, Any] = json.loads(text)
    for name in ("command", "readable", "writable"):
        values[name] = tuple(values[name])
    values["limits"] = Limits(*values["limits"])
    return Policy(**values)
