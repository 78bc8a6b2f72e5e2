"""A process before its imports: signals that come before anything could drain, and what imports need not do.

Imports nothing slow itself: a service takes a second to import the rest.

The first process of a container ignores what it does not handle, and is killed when its grace period is over.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType


def prepare_process() -> None:
    """End the process at once when it is told to stop, until others handle it, load no console, and collect no garbage
    until `end_imports`."""
    gc.disable()  # imports make little of it, and looks at what they keep are a fifteenth of their time
    # structlog imports rich, which is there for the command line, for a console that no service has: 4 MB.
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType] - how Python says that a module is not to be had
    for number in list_stops():
        signal.signal(number, _exit)


def end_imports() -> None:
    """Collect garbage from now on, but look at nothing that is there already."""
    gc.freeze()
    gc.enable()


def list_stops() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a service; not SIGHUP under nohup."""
    hang_up = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGTERM, signal.SIGINT, *hang_up)


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(0)
