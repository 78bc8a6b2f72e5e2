"""Starts this program again with the settings that every world needs."""

from __future__ import annotations

import os
import sys

SETTINGS = {"PYTHONHASHSEED": "0", "HEADRACE_TRANSPORT": "local"}
"""The order of sets of texts, the same in every process; and calls in memory."""


def start_again(module: str) -> None:
    """Replace this process by `python -m module` with SETTINGS, unless it has them."""
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        os.environ |= SETTINGS
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
