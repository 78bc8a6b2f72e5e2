"""Files mentioned in a context, kept beside the summary while small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from headrace.v1 import memory_pb2

FILES_MAX = 5
LINES_MAX = 1000

KEPT_RATIO = 0.1
"""Share of the limit that all kept files may take together."""


def limit_files(files: Iterable[memory_pb2.ContextFile]) -> list[memory_pb2.ContextFile]:
    limited: list[memory_pb2.ContextFile] = []
    for file in islice(files, FILES_MAX):
        lines = file.text.splitlines()
        if len(lines) > LINES_MAX:
            omitted = file.lines_omitted + len(lines) - LINES_MAX
            file = memory_pb2.ContextFile(path=file.path, text="\n".join(lines[:LINES_MAX]), lines_omitted=omitted)
        limited.append(file)
    return limited


def format_file(file: memory_pb2.ContextFile) -> str:
    note = f"\n[{file.lines_omitted:,} more lines]" if file.lines_omitted else ""
    return f"[File: {file.path}]\n{file.text}{note}"


def select_fitting(
    files: Sequence[memory_pb2.ContextFile], room: int, count: Callable[[str], int]
) -> list[memory_pb2.ContextFile]:
    found: list[memory_pb2.ContextFile] = []
    for file in files:
        cost = count(format_file(file))
        if cost <= room:
            room -= cost
            found.append(file)
    return found
