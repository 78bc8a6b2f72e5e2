#!/usr/bin/env python3
"""Writes headrace/sync, the client for programs without an event loop, from the asynchronous client word by word.

    packaging/client/make_sync.py [--check]

With --check it writes nothing, and its exit status is 1 where a file is not what its source says. It needs ruff.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "headrace"
SOURCES = ["client.py", "run_stream.py", *sorted(f"calls/{path.name}" for path in PACKAGE.glob("calls/*.py"))]

WORDS = [
    (r"await asyncio\.to_thread\(([\w.]+)\)", r"\1()"),
    (r"await asyncio\.sleep", "time.sleep"),
    (r"import asyncio\n", ""),
    (r"async (def|with|for)", r"\1"),
    (r"await ", ""),
    (r"\bAwaitable\[(.*)\]\]", r"\1]"),
    (r"Awaitable, ", ""),
    (r"AbstractAsyncContextManager", "AbstractContextManager"),
    (r"AsyncExitStack", "ExitStack"),
    (r"enter_async_context", "enter_context"),
    (r"asynccontextmanager", "contextmanager"),
    (r"Async(Generator|Iterator)", r"\1"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"__a(enter|exit|next)__", r"__\1__"),
    (r"\banext\(", "next("),
    (r"grpc\.aio\.", "grpc."),
    (r"for (\w+) in ([\w.]+):\n +yield \1\n", r"yield from \2\n"),
    (r"tasks of a loop may share it", "threads may share it"),
    (
        r"it is cut \(run_stream\.py\)\..*\n",
        "it is cut (run_stream.py). Programs with an event loop have `headrace.client`.\n",
    ),
    (r"(from|import) headrace\.(client|run_stream|streams|calls)\b", r"\1 headrace.sync.\2"),
]
"""What replaces what, in this order."""


def translate(text: str) -> str:
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    return run_ruff(run_ruff(text, "check", "--select", "I", "--fix", "--quiet"), "format")


def run_ruff(text: str, *command: str) -> str:
    ruff = [Path(sys.executable).with_name("ruff"), *command, "--stdin-filename", PACKAGE / "sync" / "client.py", "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def main() -> int:
    for name in SOURCES:
        path = PACKAGE / "sync" / name
        text = translate((PACKAGE / name).read_text())
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv:
            sys.stderr.write(f"{path} is not what headrace/{name} says; `make gen` writes it\n")
            return 1
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
