"""Runs extract.py in a process that may die."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Literal

import msgspec

from services.tools.errors import ToolFailed

EXTRACT_S = 15.0
"""Time for one document: pages take 0.2 to 6 s; a PDF file may be built to take for ever."""

EXTRACTS_MAX = 4
"""Processes at a time, each of up to 768 MB; the next ones wait."""

SOURCE = str(Path(__file__).parents[3])
START = f"import sys; sys.path.insert(0, {SOURCE!r}); from services.tools.web.extract import main; main()"


class ExtractedText(msgspec.Struct, frozen=True):
    title: str
    text: str


class Extractor:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(EXTRACTS_MAX)

    async def extract(self, kind: Literal["html", "pdf"], body: bytes) -> ExtractedText:
        """Extracts the text; raises ToolFailed when the document cannot be read, or not in time."""
        async with self._places:
            code, output = await _run_process(kind, body)
        if code != 0:
            raise ToolFailed(f"the {kind.upper()} document cannot be read: it is damaged or too large")
        return msgspec.json.decode(output, type=ExtractedText)


async def _run_process(kind: str, body: bytes) -> tuple[int | None, bytes]:
    # Leaving early kills the process.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "utf8", "-c", START, kind),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(EXTRACT_S):
            output, _ = await process.communicate(body)
    except TimeoutError as error:
        raise ToolFailed(f"the {kind.upper()} document could not be read within {EXTRACT_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output
