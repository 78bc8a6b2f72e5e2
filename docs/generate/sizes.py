"""Measures the parts of the source, without generated files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

PARTS = ("headrace", *(f"services/{path.name}" for path in sorted((ROOT / "services").iterdir()) if path.is_dir()))

GENERATED = ("_pb2.py", "_pb2_grpc.py")


def list_sizes() -> str:
    """Return a table of lines per part, rounded to 1,000 so that few changes affect it."""
    sizes = {part: _measure(ROOT / part) for part in PARTS}
    rows = [f"| `{part}` | {lines:,} |" for part, lines in sizes.items() if lines]
    return "\n".join(["| part | lines |", "| --- | --: |", *rows, f"| tests | {_measure(ROOT / 'tests'):,} |"])


def _measure(folder: Path) -> int:
    files = (path for path in folder.rglob("*.py") if not path.name.endswith(GENERATED))
    lines = sum(path.read_bytes().count(b"\n") for path in files)
    return round(lines, -3)
