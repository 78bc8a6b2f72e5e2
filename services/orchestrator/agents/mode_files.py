"""The operator's modes: Python files of the configuration folder, read again when they change.

A mode file runs in this process with all its rights, so only people with write access to the configuration folder can
add one. A refused file leaves its last good version in force. Versions read since the start can be found by hash, so
that a run continues with the code it began with.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog

from headrace.regular_files import read_regular_file
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal

FILE_BYTES_MAX = 1024 * 1024

VERSIONS_MAX = 100
"""Maximum number of earlier versions kept, across all files."""

FUNCTION = "run"

log = structlog.get_logger()


class ModeFileError(Exception):
    """Describes a problem in a mode file, with its line."""


@dataclass(frozen=True, slots=True)
class ModeCode:
    name: str
    """The file's name without `.py`, by which agents name the mode."""

    path: str
    digest: str
    """SHA-256 of the file, in hexadecimal."""

    run: Callable[[Any], Awaitable[str | None]]

    source: str
    """The file's text."""

    def find_line(self, error: BaseException) -> int:
        """Return the line of the file that raised `error`, directly or through a call; 0 if none did."""
        return find_line(error, self.path)


class ModeFiles:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._in_force: dict[str, ModeCode] = {}
        self._known: dict[tuple[str, str], ModeCode] = {}
        self.digests: Mapping[str, str] = {}
        """Hashes of the modes in force, by name; a reload replaces the mapping rather than changing it."""

    @property
    def names(self) -> list[str]:
        return sorted(self._in_force)

    def find(self, name: str, digest: str = "") -> ModeCode | None:
        """Return the version with this hash if it is still known, else the one in force; None if the mode does not
        exist.

        If a run began with another version, replaying it shows whether the current one fits.
        """
        return self._known.get((name, digest)) or self._in_force.get(name)

    def reload(self) -> None:
        """Read all files; report refused ones, and never raise."""
        files = sorted(self._folder.glob("[!.]*.py")) if self._folder is not None else []
        in_force: dict[str, ModeCode] = {}
        refused = 0
        for path in files:
            last_good = self._in_force.get(path.stem)
            try:
                in_force[path.stem] = self._read(path)
            except (ModeFileError, OSError) as error:
                refused += 1
                stays = last_good is not None
                report_refusal("mode file refused", file=path.name, problem=str(error), last_good_version_stays=stays)
                if last_good is not None:
                    in_force[path.stem] = last_good
        REFUSED_FILES.labels("modes").set(refused)
        self._in_force, self.digests = in_force, {name: code.digest for name, code in in_force.items()}
        used = {(code.name, code.digest) for code in in_force.values()}
        old = [key for key in self._known if key not in used]
        for key in old[: max(0, len(old) - VERSIONS_MAX)]:
            sys.modules.pop(self._known.pop(key).run.__module__, None)
        if files or refused:
            log.info("modes in force", modes=self.names, refused=refused)

    def _read(self, path: Path) -> ModeCode:
        source = read_regular_file(path, FILE_BYTES_MAX)
        digest = hashlib.sha256(source).hexdigest()
        known = self._known.get((path.stem, digest))
        if known is None:
            known = self._known[path.stem, digest] = load_mode(path, source, digest)
        return known


def load_mode(path: Path, source: bytes, digest: str) -> ModeCode:
    """Execute a file.

    Raises:
        ModeFileError: It is not valid Python, raises on import, or lacks an async function `run` with one parameter.
    """
    module = ModuleType(f"headrace_mode_{path.stem}_{digest[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses and annotations look for it
    try:
        exec(compile(source, str(path), "exec"), vars(module))
        _check_function(getattr(module, FUNCTION, None))
    except ModeFileError:
        del sys.modules[module.__name__]
        raise
    except BaseException as error:
        # The file's author controls what it does on import; nothing it raises may end this process.
        del sys.modules[module.__name__]
        if isinstance(error, SyntaxError):
            raise ModeFileError(f"line {error.lineno}: {error.msg}") from error
        raise ModeFileError(f"line {find_line(error, str(path))}: {type(error).__name__}: {error}") from error
    return ModeCode(path.stem, str(path), digest, getattr(module, FUNCTION), source.decode(errors="replace"))


def find_line(error: BaseException, path: str) -> int:
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return lines[-1] if lines else 0


def _check_function(function: Any) -> None:
    if function is None:
        raise ModeFileError(f"line 1: has no function {FUNCTION!r}; a mode is `async def {FUNCTION}(mode)`")
    line = function.__code__.co_firstlineno if inspect.isfunction(function) else 1
    if not inspect.iscoroutinefunction(function):
        raise ModeFileError(f"line {line}: {FUNCTION!r} must be an async function")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ModeFileError(f"line {line}: {FUNCTION!r} must take one argument, the mode's run") from None
