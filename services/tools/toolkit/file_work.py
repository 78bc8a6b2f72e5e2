"""Does blocking work on files in a thread, with errors in words for the model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from errno import ELOOP, EXDEV
from typing import TypeVar

from services.tools.errors import ToolFailed
from services.tools.workspace.quota import WorkspaceFull

T = TypeVar("T")


async def run_in_thread(path: str, work: Callable[[], T]) -> T:
    """Runs `work` in a thread; raises ToolFailed when the file system refuses."""
    try:
        return await asyncio.to_thread(work)
    except WorkspaceFull as error:
        raise ToolFailed(error.text) from error
    except OSError as error:
        if error.errno in (EXDEV, ELOOP):
            raise ToolFailed(f"{path!r} leads out of the workspace; use a path relative to it") from error
        raise ToolFailed(f"{path!r}: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:
        raise ToolFailed(f"{path!r}: {error}") from error
