"""Wraps the supervisor in namespaces, with an empty environment, a read-only system and the workspace bound.

The process tier runs inside, so both layers must fail before a command reaches anything. Nothing is mounted below
folders that a command may write: bwrap before 0.12 follows links planted there.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterable

from services.tools.sandbox.supervisor.confine import SYSTEM
from services.tools.sandbox.supervisor.policy import SHARED_MEMORY, Policy

PROGRAM = "bwrap"

NAMESPACES = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--disable-userns", "--die-with-parent", "--clearenv", "--hostname", "sandbox", "--cap-drop", "ALL"),
    *("--proc", "/proc", "--dev", "/dev"),
)
"""Cgroup namespaces are optional; all others are required."""


@functools.cache
def find_program() -> str | None:
    return shutil.which(PROGRAM)


def build_arguments(policy: Policy, needed: Iterable[str]) -> tuple[str, ...]:
    """Return bwrap's arguments; `needed` are paths that the supervisor itself reads."""
    writable = {os.path.realpath(path) for path in (policy.folder, *policy.writable)}
    readable = {path for path in (*policy.readable, *needed) if os.path.exists(path)}
    binds = dict.fromkeys(_list_system(), "--ro-bind") | dict.fromkeys(readable, "--ro-bind")
    binds |= dict.fromkeys((policy.folder, *policy.writable), "--bind")
    mounts = ["--size", str(policy.limits.home_bytes), "--tmpfs", policy.home_parent]
    mounts += ["--size", str(policy.limits.shared_bytes), "--tmpfs", SHARED_MEMORY]
    # Parents before what lies in them: a later mount covers an earlier one.
    for path, kind in sorted(binds.items()):
        real = os.path.realpath(path)
        is_inside = any(real.startswith(folder + "/") or real == folder for folder in writable)
        if kind == "--bind" or not is_inside:
            mounts += (kind, path, path)
    return (find_program() or PROGRAM, *NAMESPACES, *mounts, "--chdir", policy.folder, "--")


@functools.cache
def _list_system() -> tuple[str, ...]:
    paths = (*SYSTEM, sys.base_prefix)
    return tuple(path for path in dict.fromkeys(paths) if not path.startswith("/proc/") and os.path.exists(path))
