"""Counts what a process does between two SIGUSR1: Python imports this at start from PYTHONPATH.

Each pair of signals writes a file to COUNTS_FOLDER. Calls are those of the main thread; SQL statements and fsyncs are
those of all threads.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import threading
from collections import Counter
from types import CodeType, FrameType
from typing import Any

FOLDER = os.environ.get("COUNTS_FOLDER", "")
SYNCS = frozenset({"fsync", "fdatasync"})
STATEMENTS = frozenset({"Connection.execute", "Cursor.execute", "Cursor.executemany", "Cursor.executescript"})

python_calls: Counter[CodeType] = Counter()
others: Counter[str] = Counter()
state: dict[str, Any] = {"is_on": False, "files": 0}


def count_main(frame: FrameType, event: str, arg: Any) -> None:
    if event == "call":
        python_calls[frame.f_code] += 1
    elif event == "c_call":
        others["C calls"] += 1
        count_special(frame, event, arg)


def count_special(frame: FrameType, event: str, arg: Any) -> None:
    if event == "c_call" and state["is_on"]:
        name = getattr(arg, "__qualname__", "")
        if name in SYNCS:
            others["fsyncs"] += 1
        elif name in STATEMENTS:
            others["SQL statements"] += 1


def read_kernel() -> Counter[str]:
    """Return the bytes written and the switches of all threads since the process began."""
    with open("/proc/self/io") as file:
        found = Counter({"bytes written": int(file.read().split()[3])})
    for path in glob.glob("/proc/self/task/*/status"):
        with open(path) as file:
            found["thread switches"] += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return found


def switch(number: int, frame: FrameType | None) -> None:
    sys.setprofile(None)
    if not state["is_on"]:
        python_calls.clear()
        others.clear()
        state.update(is_on=True, kernel=read_kernel(), files=state["files"] + 1)
        sys.setprofile(count_main)
        return
    state["is_on"] = False
    kernel = {name: value - state["kernel"][name] for name, value in read_kernel().items()}
    functions: Counter[str] = Counter()
    for code, calls in python_calls.items():
        functions[f"{code.co_filename}:{code.co_qualname}"] += calls
    path = f"{FOLDER}/{os.getpid()}-{state['files']}"
    with open(f"{path}.part", "w") as file:
        json.dump({**functions, **others, **kernel}, file)
    os.rename(f"{path}.part", f"{path}.json")


if FOLDER:
    threading.setprofile(count_special)
    signal.signal(signal.SIGUSR1, switch)
