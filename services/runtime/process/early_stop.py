"""Prepares a process before its imports: handles early stop signals, and skips work that imports do not need.

Imports nothing slow: a service takes a second to import the rest.

The first process of a container ignores signals without a handler, and is killed when its grace period is over.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType


def prepare_process() -> None:
    """Until others handle stop signals, let them end the process at once; load no console, and collect no garbage until
    `end_imports`."""
    gc.disable()  # imports create little garbage, and scans of the objects they keep take a fifteenth of their time
    # structlog imports rich, a package of the command line, for a console that no service has: 4 MB.
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType] - None makes Python's import fail
    for number in list_stops():
        signal.signal(number, _exit)


def end_imports() -> None:
    """Collect garbage from now on, but ignore all existing objects."""
    gc.freeze()
    gc.enable()


def list_stops() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a service; under nohup without SIGHUP."""
    hang_up = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGTERM, signal.SIGINT, *hang_up)


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(0)
