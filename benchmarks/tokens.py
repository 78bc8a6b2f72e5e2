"""Token counting: `python -m benchmarks.tokens` prints MB/s by encoding and kind of text, and the cost of loading."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from benchmarks.cpu import rss_mb
from services.runtime.tokens.count import EncodingName, count_text, encoding

SIZE_BYTES = 2_000_000
PROSE = "The quick brown fox jumps over the lazy dog, and nobody asks why; it is 12,345 times that it has. "
CHINESE = "敏捷的棕色狐狸跳过了懒狗。今天北京的天气怎么样？请用三句话回答，不要超过一百个字！"
BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8"


def main() -> None:
    table = Table(title="Token counting", title_justify="left")
    for column in ("encoding", "load s", "load MB", "text", "tokens", "MB/s"):
        table.add_column(column, justify="left" if column in ("encoding", "text") else "right")
    for name in get_args(EncodingName):
        before_mb, started = rss_mb(os.getpid()), time.perf_counter()
        encoding(name)
        load = (f"{time.perf_counter() - started:.2f}", f"{rss_mb(os.getpid()) - before_mb:.0f}")
        for kind, text in _texts():
            started = time.perf_counter()
            tokens = count_text(text, name)
            rate = len(text.encode()) / (time.perf_counter() - started) / 1e6
            table.add_row(name, *load, kind, f"{tokens:,}", f"{rate:.1f}")
    Console(width=120).print(table)


def _texts() -> Iterator[tuple[str, str]]:
    code = "".join(path.read_text() for path in sorted(Path(__file__).parents[1].glob("services/*/*.py")))
    units = {"prose": PROSE, "code": code, "Chinese": CHINESE, "base64": BASE64, "one word": "a", "blanks": " "}
    for kind, unit in units.items():
        yield kind, unit * (SIZE_BYTES // len(unit.encode()) + 1)


if __name__ == "__main__":
    main()
