"""One process under supervision: started again when it dies, stopped when told, never left behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import click

from headrace.cli.complaints import sentence
from headrace.cli.exits import FAILED
from headrace.cli.suite import ChildSpec

DEATHS_MAX, DEATHS_WINDOW_S = 3, 10.0
"""So many deaths in so short a time before the suite was ever ready: it cannot start."""

WAIT_FIRST_S, WAIT_MAX_S = 0.1, 5.0

WRONG_SETTINGS = 2
"""The exit code of services whose settings are wrong: starting them again changes nothing."""

MESSAGE_LINES_MAX = 5

LOG_BYTES_MAX = 64 << 20
"""A log that is larger when its process starts is set aside, in the place of the one before: twice that is kept."""

PR_SET_PDEATHSIG = 1


class CannotStart(click.ClickException):
    """A service does not start; the message is its own."""

    exit_code = FAILED


class Child:
    """Owns one process and its log file."""

    def __init__(self, spec: ChildSpec, logs_dir: Path, *, is_verbose: bool, say: Callable[[str], None]) -> None:
        self.name = spec.name
        self.has_been_ready = False
        """Set by the owner: from then on a death is always followed by a new start."""
        self._spec = spec
        self._log_path = logs_dir / f"{spec.name}.log"
        self._is_verbose = is_verbose
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False
        self._gone = asyncio.Event()

    async def supervise(self) -> None:
        """Keep the process running until `stop`.

        Raises:
            CannotStart: Its settings are wrong, or it died again and again before the suite was ready.
        """
        deaths: list[float] = []
        wait_s = WAIT_FIRST_S
        try:
            while not self._is_stopping:
                _set_aside(self._log_path)
                started, log_size = time.monotonic(), self._log_size()
                code = await self._run_once()
                if self._is_stopping:
                    return
                now = time.monotonic()
                deaths = [death for death in deaths if now - death < DEATHS_WINDOW_S] + [now]
                if not self.has_been_ready and (code == WRONG_SETTINGS or len(deaths) >= DEATHS_MAX):
                    raise CannotStart(f"{self.name} cannot start:\n{self._message(log_size)}")
                wait_s = WAIT_FIRST_S if now - started > DEATHS_WINDOW_S else min(wait_s * 2, WAIT_MAX_S)
                self._say(f"{self.name} ended with {code}; starting it again (log: {self._log_path})")
                await asyncio.sleep(wait_s)
        finally:
            self._gone.set()

    async def stop(self) -> None:
        """Ask the process to end, and wait until it has."""
        self._is_stopping = True
        self._signal(signal.SIGTERM)
        await self._gone.wait()

    def kill(self) -> None:
        """End the process at once."""
        self._is_stopping = True
        self._signal(signal.SIGKILL)

    async def _run_once(self) -> int:
        """Run the process to its end; leaving early kills it."""
        with _opened_log(self._log_path) as log_file:
            output = asyncio.subprocess.PIPE if self._is_verbose else log_file
            process = await asyncio.create_subprocess_exec(
                *self._spec.command,
                env=self._spec.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C at the terminal is ours alone: we stop the children in their order
                preexec_fn=_die_with_parent,
            )
            self._process = process
            if self._is_stopping:  # told to stop while it was being started
                self._signal(signal.SIGTERM)
            try:
                if process.stdout is not None:
                    while said := await process.stdout.read(1 << 16):
                        log_file.write(said)
                        log_file.flush()
                        sys.stderr.buffer.write(said)
                        sys.stderr.buffer.flush()
                return await process.wait()
            finally:
                self._signal(signal.SIGKILL)
                await process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                # Not send_signal: it reaps a process that has just died, and asyncio then knows no exit code (255).
                os.kill(self._process.pid, number)

    def _log_size(self) -> int:
        return self._log_path.stat().st_size if self._log_path.exists() else 0

    def _message(self, start: int) -> str:
        """The last things that the process said since its log had `start` bytes, for a person to read."""
        with self._log_path.open("rb") as log_file:
            log_file.seek(start)
            lines = log_file.read(1 << 20).decode(errors="replace").splitlines()
        said = [readable for line in lines if (readable := _readable(line))]
        return "\n".join(said[-MESSAGE_LINES_MAX:]) or f"it said nothing (log: {self._log_path})"


def _set_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))


def _opened_log(log: Path) -> BinaryIO:
    """To append to; for the owner alone, as the chats are: it tells who asks what, and when."""
    file = os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    os.fchmod(file.fileno(), 0o600)  # one that an older version has made
    return file


def _readable(line: str) -> str:
    """A log line as words: of our own JSON only what went wrong, of anything else all of it."""
    return (sentence(line) or "") if line.startswith("{") else line


# Loaded here: between fork and exec only what is already in memory is safe to call.
_libc = ctypes.CDLL(None)
_parent_pid = os.getpid()


def _die_with_parent() -> None:
    """In the child, before exec: have the kernel kill it when `up` dies, however that happens."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != _parent_pid:  # it died before the line above
        os._exit(FAILED)
