"""Searching files for a text."""

from pathlib import Path


def find_text(folder: Path, text: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
