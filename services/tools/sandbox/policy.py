"""What a command is and what it may do: the one message from the service to the supervisor.

Imported by the supervisor: the standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """Per process of the command; the kernel's rlimits."""

    cpu_s: int = 300
    memory_bytes: int = 4 * 1024**3
    """Address space. Interpreters reserve much more than they use."""

    file_bytes: int = 512 * 1024**2
    processes: int = 1024
    """All processes and threads of the user, the service's own included; the kernel exempts root."""

    open_files: int = 512


@dataclass(frozen=True, slots=True)
class Policy:
    """One command. Paths are absolute; what is not listed cannot be opened."""

    command: tuple[str, ...]
    """Program and arguments; the program is looked up in the PATH of become.py."""

    folder: str
    """Where it runs; readable and writable."""

    input: str = ""
    """Its standard input."""

    readable: tuple[str, ...] = ()
    """Beyond the system's own files (become.py)."""

    writable: tuple[str, ...] = ()

    home_parent: str = "/tmp"
    """Where its private home, which lives as long as the command, is made."""

    confined: bool = True
    """False: without Landlock and seccomp, where the operator has allowed it."""

    timeout_s: float = 120.0
    limits: Limits = field(default_factory=Limits)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def from_json(text: str) -> Policy:
    """The policy that `to_json` gave."""
    values: dict[str, Any] = json.loads(text)
    for name in ("command", "readable", "writable"):
        values[name] = tuple(values[name])
    values["limits"] = Limits(**values["limits"])
    return Policy(**values)
