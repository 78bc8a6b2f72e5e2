"""Defines the one message from the service to the supervisor.

Standard library only, and no dataclasses, which would take a quarter of its start.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Limits(NamedTuple):
    """Each process of the command has these, by the kernel's rlimits."""

    cpu_s: int = 300
    memory_bytes: int = 4 * 1024**3
    """Interpreters reserve much more address space than they use."""

    file_bytes: int = 512 * 1024**2
    processes: int = 256
    """The supervisor counts the command's processes and threads (processes.py)."""

    open_files: int = 512


class Policy(NamedTuple):
    """Paths are absolute; a command cannot open one that is not listed."""

    command: tuple[str, ...]

    folder: str
    """Working directory; readable and writable."""

    input: str = ""

    readable: tuple[str, ...] = ()

    writable: tuple[str, ...] = ()

    home_parent: str = "/tmp"
    """A private home is made here, which lives as long as the command."""

    confined: bool = True
    """False: no Landlock and seccomp, where the operator has allowed it."""

    namespaces: bool = False

    network: bool = False
    """Needs namespaces; goes through network_proxy.py."""

    channel: int | None = None
    """The command gets this descriptor of the service under the same number."""

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
