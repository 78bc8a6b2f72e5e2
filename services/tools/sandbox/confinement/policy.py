"""The policy of a command: the one message from the service to the supervisor.

Imported by the supervisor: the standard library only, and no dataclasses, which would take a quarter of its start.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Limits(NamedTuple):
    """Per process of the command, by the kernel's rlimits, except for their number."""

    cpu_s: int = 300
    memory_bytes: int = 4 * 1024**3
    """Address space. Interpreters reserve much more than they use."""

    file_bytes: int = 512 * 1024**2
    processes: int = 256
    """Processes and threads of the command at a time, counted by its supervisor (processes.py)."""

    open_files: int = 512


class Policy(NamedTuple):
    """One command. Paths are absolute; what is not listed cannot be opened."""

    command: tuple[str, ...]
    """Program and arguments; the program is looked up in the PATH of confine.py."""

    folder: str
    """Working directory; readable and writable."""

    input: str = ""

    readable: tuple[str, ...] = ()
    """Paths readable beside the system's own files (confine.py)."""

    writable: tuple[str, ...] = ()

    home_parent: str = "/tmp"
    """Where its private home, which lives as long as the command, is made."""

    confined: bool = True
    """False: without Landlock and seccomp, where the operator has allowed it."""

    namespaces: bool = False
    """By bwrap (bubblewrap.py)."""

    network: bool = False
    """Only with namespaces; the proxy is network_proxy.py."""

    channel: int | None = None
    """A descriptor of the service that the command gets under the same number."""

    timeout_s: float = 120.0
    limits: Limits = Limits()

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "limits": self.limits._asdict()})


def parse_policy(text: str) -> Policy:
    values: dict[str, Any] = json.loads(text)
    for name in ("command", "readable", "writable"):
        values[name] = tuple(values[name])
    values["limits"] = Limits(**values["limits"])
    return Policy(**values)
