"""System calls that can fail, their possible errors, and named failure points.

The order of SERVICES and CALLS is that of failing_calls.c.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

SERVICES = ("memory", "orchestrator", "llm_gateway", "tools", "facade")

SHORT = "short"
"""A call that does half of what was requested; every caller must continue with the rest."""

EINTR = "EINTR"

FAULTS: dict[str, tuple[str, ...]] = {
    "open": ("EIO", "ENOSPC", "EMFILE", EINTR),
    "opendir": ("EIO", "EMFILE"),
    "read": ("EIO", EINTR, SHORT),
    "write": ("EIO", "ENOSPC", EINTR, SHORT),
    "fsync": ("EIO", "ENOSPC", EINTR),
    "fdatasync": ("EIO", "ENOSPC", EINTR),
    "rename": ("EIO", "ENOSPC"),
    "link": ("EIO", "ENOSPC"),
    "unlink": ("EIO",),
    "mkdir": ("EIO", "ENOSPC"),
    "ftruncate": ("EIO", EINTR),
    "mmap": ("ENOMEM",),
    # Linux does not interrupt these on a non-blocking socket.
    "socket": ("EMFILE",),
    "connect": ("ECONNREFUSED",),
    "accept": ("EMFILE", "ECONNABORTED", EINTR),
    "recv": ("ECONNRESET", EINTR, SHORT),
    "send": ("EPIPE", EINTR, SHORT),
}
"""Errors by call; socket calls fail as a network would."""

CALLS = tuple(FAULTS)

INVISIBLE = (EINTR, SHORT)
"""Faults that no client may notice."""

PHASES = ("run", "start")
"""When calls count: while the workload runs, or from a kill of the service until the suite is ready again."""


@dataclass(frozen=True, slots=True)
class Point:
    """The n-th call of a kind by a service in a phase, and its failure."""

    service: str
    phase: str
    call: str
    n: int
    fault: str
    is_lasting: bool = False
    """Whether all calls from the n-th on fail, for as long as the harness decides."""

    @classmethod
    def parse(cls, name: str) -> Point:
        service, phase, call, n, fault, *rest = name.split(":")
        assert service in SERVICES, f"{service!r} is no service: {SERVICES}"
        assert phase in PHASES, f"{phase!r} is no phase: {PHASES}"
        assert fault in FAULTS[call], f"{call} fails with {FAULTS[call]}"
        assert rest in ([], ["on"]), f"{rest} follows the fault"
        return cls(service, phase, call, int(n), fault, bool(rest))

    @property
    def error(self) -> int:
        return -1 if self.fault == SHORT else getattr(errno, self.fault)

    def __str__(self) -> str:
        name = f"{self.service}:{self.phase}:{self.call}:{self.n}:{self.fault}"
        return f"{name}:on" if self.is_lasting else name
