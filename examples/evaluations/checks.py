"""Checks of weather.yaml that the file cannot say by itself."""

from __future__ import annotations

from typing import Any


def is_short(result: dict[str, Any]) -> bool | str:
    words = len(result["answer"].split())
    return True if words <= 60 else f"it has {words} words"
