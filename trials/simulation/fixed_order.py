"""Restarts this program with the settings that every world needs."""

import os
import sys

SETTINGS = {"PYTHONHASHSEED": "0", "HEADRACE_TRANSPORT": "local"}
"""A fixed order of sets of strings in every process, and in-memory calls."""


def start_again(module: str) -> None:
    """Replace this process by `python -m module` with SETTINGS, unless it has them."""
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        os.environ |= SETTINGS
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
