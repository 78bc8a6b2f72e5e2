"""The Python side of failing_calls.c: builds it, makes services load it, selects failures and reads results."""

import ctypes
import mmap
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trials.faults.calls import CALLS, SERVICES, Point

SOURCE = Path(__file__).with_name("failing_calls.c")
FOLDERS, WHERE_BYTES = 2, 256
NEVER = 2**31 - 1

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed on this machine")


class _Control(ctypes.Structure):
    """Layout of `struct control`."""

    _fields_ = (
        ("is_armed", ctypes.c_int32),
        ("service", ctypes.c_int32),
        ("call", ctypes.c_int32),
        ("first", ctypes.c_int32),
        ("last", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("fired", ctypes.c_int32),
        ("counts", ctypes.c_int32 * len(CALLS) * len(SERVICES)),
        ("folders", ctypes.c_char * WHERE_BYTES * FOLDERS),
        ("where", ctypes.c_char * WHERE_BYTES),
    )


class Faults:
    """Controls the system calls of one suite's services."""

    def __init__(self, control: _Control, environment: dict[str, str]) -> None:
        self._control = control
        self.environment = environment
        """Variables that `headrace up` passes on to every service."""

    def count(self) -> None:
        """Count calls from now on, without failures."""
        self._arm(None)

    def fail(self, point: Point) -> None:
        """Count calls from now on, and make those of the point fail."""
        self._arm(point)

    def stop(self) -> None:
        """Stop failing calls."""
        self._control.is_armed = 0

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Calls since counting started, by service and kind."""
        rows = (dict(zip(CALLS, row, strict=True)) for row in self._control.counts)
        return dict(zip(SERVICES, rows, strict=True))

    @property
    def fired(self) -> int:
        """Number of failed calls."""
        return self._control.fired

    @property
    def where(self) -> str:
        """File affected by the first failed call."""
        return self._control.where.decode(errors="replace") if self.fired else ""

    def _arm(self, point: Point | None) -> None:
        self.stop()
        ctypes.memset(self._control.counts, 0, ctypes.sizeof(self._control.counts))
        self._control.fired = 0
        self._control.service = -1
        if point is not None:
            self._control.service = SERVICES.index(point.service)
            self._control.call = CALLS.index(point.call)
            self._control.first, self._control.last = point.n, NEVER if point.is_lasting else point.n
            self._control.error = point.error
        self._control.is_armed = 1


@contextmanager
def loading_faults(folder: Path, *owned: Path) -> Generator[Faults]:
    """Build the library and its control file in `folder`; only calls on files below `owned` count."""
    library, path = folder / "failing_calls.so", folder / "control"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wno-nonnull-compare", "-o", library, SOURCE, "-ldl"],
        check=True,
    )
    path.write_bytes(bytes(ctypes.sizeof(_Control)))
    with path.open("rb+") as file:
        # Unmapped with its last reference.
        control = _Control.from_buffer(mmap.mmap(file.fileno(), 0))
        for place, name in zip(control.folders, owned, strict=False):
            place.value = str(name).encode()
        # Only variables of the dynamic linker are passed on to every service.
        yield Faults(control, {"LD_PRELOAD": str(library), "LD_FAULTS": str(path)})
