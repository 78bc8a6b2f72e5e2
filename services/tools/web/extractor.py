"""Runs extract.py in a process of its own: a page that takes for ever, or all memory, costs that process its life."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Literal

import msgspec

from services.tools.errors import ToolFailed

EXTRACT_S = 15.0
"""From start to end. Pages take 0.2 to 6 s; a PDF file may be built to take for ever."""

EXTRACTS_MAX = 4
"""Processes at a time; each may take 768 MB. The next ones wait for a place."""

SOURCE = str(Path(__file__).parents[3])
START = f"import sys; sys.path.insert(0, {SOURCE!r}); from services.tools.web.extract import main; main()"


class Extracted(msgspec.Struct, frozen=True):
    """What the process found."""

    title: str
    text: str


class Extractor:
    """One for the service, shared by all calls."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(EXTRACTS_MAX)

    async def extract(self, kind: Literal["html", "pdf"], body: bytes) -> Extracted:
        """Raises ToolFailed: the document cannot be read, or not in time."""
        async with self._places:
            code, said = await _run(kind, body)
        if code != 0:
            raise ToolFailed(f"the {kind.upper()} document cannot be read: it is damaged or too large")
        return msgspec.json.decode(said, type=Extracted)


async def _run(kind: str, body: bytes) -> tuple[int | None, bytes]:
    """Exit code and output; leaving early kills the process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "utf8", "-c", START, kind),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(EXTRACT_S):
            said, _ = await process.communicate(body)
    except TimeoutError as error:
        raise ToolFailed(f"the {kind.upper()} document could not be read within {EXTRACT_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said
