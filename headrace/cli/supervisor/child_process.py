"""One supervised process: restarted when it dies, stopped on request, and never orphaned."""

from __future__ import annotations

import asyncio
import ctypes
import io
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.cli.facade.exit_codes import FAILED
from headrace.cli.supervisor.error_reports import describe_log_error
from headrace.cli.supervisor.ports import CannotStart
from headrace.cli.supervisor.suite_plan import ProcessSpec

DEATHS_MAX = 3
"""Deaths before readiness after which the process is considered unable to start."""

WAIT_FIRST_S, WAIT_MAX_S = 0.1, 5.0
"""Wait before a restart, doubled after each death. With the longest wait, a service that was killed ten times
serves again within 15 s.
"""

SETTLED_S = 10.0
"""Lifetime after which the next death counts as the first."""

WRONG_SETTINGS, WRONG_CONFIGURATION = 2, 78
"""Exit codes of a service that needs a person's help; restarting it is useless."""

MESSAGE_LINES_MAX = 5

LOG_BYTES_MAX = 64 << 20
"""Size above which a log is moved to `.log.1`."""

LOG_LOOKS_S = 10.0
"""Interval between checks of a log's size; a service can write about 50 MB in that time."""

PR_SET_PDEATHSIG = 1


class ChildProcess:
    def __init__(
        self,
        spec: ProcessSpec,
        logs_dir: Path,
        *,
        is_verbose: bool,
        report: Callable[[str], None],
        log_looks_s: float = LOG_LOOKS_S,
    ) -> None:
        self.name = spec.name
        self.is_replica = spec.is_replica
        self.has_been_ready = False
        """Set by the owner; from then on, every death leads to a restart."""
        self._spec = spec
        self._log_path = logs_dir / f"{spec.name}.log"
        self._is_verbose = is_verbose
        self._report = report
        self._log_looks_s = log_looks_s
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False
        self._ended = asyncio.Event()

    async def supervise(self) -> None:
        """Keep the process running until `stop`.

        Raises:
            CannotStart: Before the suite was ready, the process needed a person's help or died too often.
        """
        deaths, wait_s = 0, WAIT_FIRST_S
        try:
            while not self._is_stopping:
                log_size = self._measure_log()
                started = time.monotonic()
                code = await self._run_once()
                if self._is_stopping:
                    return
                deaths += 1
                is_hopeless = code in (WRONG_SETTINGS, WRONG_CONFIGURATION) or deaths >= DEATHS_MAX
                if is_hopeless and not self.has_been_ready:
                    raise CannotStart(f"{self.name} cannot start:\n{self._read_last_words(log_size)}")
                wait_s = WAIT_FIRST_S if time.monotonic() - started > SETTLED_S else min(wait_s * 2, WAIT_MAX_S)
                self._report(f"{self.name} ended with {code}; starting it again (log: {self._log_path})")
                await asyncio.sleep(wait_s)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        self._is_stopping = True
        self._signal(signal.SIGTERM)
        await self._ended.wait()

    def kill(self) -> None:
        self._is_stopping = True
        self._signal(signal.SIGKILL)

    def measure_cpu_s(self) -> float:
        """Return the CPU time of the running process in seconds; 0 if it is not running."""
        try:
            stat = Path(f"/proc/{self._process.pid if self._process else 0}/stat").read_text()
        except OSError:
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    async def _run_once(self) -> int:
        """Run the process to its end; leaving early kills it."""
        with _open_log(self._log_path) as log_fd:
            stdout = asyncio.subprocess.PIPE if self._is_verbose else log_fd
            process = await asyncio.create_subprocess_exec(
                *self._spec.command,
                env=self._spec.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # only we get Ctrl-C, and stop the children in order
                preexec_fn=_set_death_signal,
            )
            self._process = process
            if self._is_stopping:  # stop() was called during the start
                self._signal(signal.SIGTERM)
            bounding = asyncio.create_task(self._bound_log(log_fd))
            try:
                if process.stdout is not None:
                    while output := await process.stdout.read(1 << 16):
                        with suppress(OSError):
                            os.write(log_fd, output)
                        show_bytes(output)
                return await process.wait()
            finally:
                bounding.cancel()
                self._signal(signal.SIGKILL)
                await process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                # Not send_signal: it reaps a process that has just died, and asyncio then loses its exit code
                # (255).
                os.kill(self._process.pid, number)

    async def _bound_log(self, log_fd: int) -> None:
        """Set the log aside whenever it is too large; runs until cancelled."""
        while True:
            with suppress(OSError):  # for example a full disk; retried at the next check
                if os.fstat(log_fd).st_size > LOG_BYTES_MAX:
                    await asyncio.to_thread(_set_log_aside, self._log_path)
            await asyncio.sleep(self._log_looks_s)

    def _measure_log(self) -> int:
        with suppress(OSError):
            return self._log_path.stat().st_size
        return 0

    def _read_last_words(self, start: int) -> str:
        """Return the last lines of the log after its first `start` bytes, or of the whole log if it was
        truncated meanwhile.
        """
        lines: list[str] = []
        with suppress(OSError), self._log_path.open("rb") as log_file:
            log_file.seek(start if os.fstat(log_file.fileno()).st_size >= start else 0)
            lines = log_file.read(1 << 20).decode(errors="replace").splitlines()
        # Only errors of our own JSON lines are readable; other lines are kept unchanged.
        texts = [describe_log_error(line) if line.startswith("{") else line for line in lines]
        return (
            "\n".join([text for text in texts if text][-MESSAGE_LINES_MAX:])
            or f"it logged nothing (log: {self._log_path})"
        )


@contextmanager
def _open_log(log: Path) -> Generator[int]:
    """Open a log for appending, readable only by its owner; if that fails, output is discarded."""
    try:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.fchmod(fd, 0o600)  # an older version may have created it
    except OSError:
        fd = os.open(os.devnull, os.O_WRONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def _set_log_aside(log: Path) -> None:
    """Copy an open log to `.log.1` and truncate it; lines logged in between may be lost."""
    aside = log.with_suffix(".log.1")
    aside.unlink(missing_ok=True)  # the disk may lack space for both
    with suppress(OSError):  # without space, truncate anyway, or the log would grow further
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(log, "rb") as source, open(fd, "wb") as target:
            shutil.copyfileobj(source, target)
    os.truncate(log, 0)


# Loaded here: between fork and exec, only calls to code already in memory are safe.
_libc = ctypes.CDLL(None)
_parent_pid = os.getpid()


def _set_death_signal() -> None:
    """Make the kernel kill the child when `up` dies; runs in the child before exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != _parent_pid:  # the parent died before prctl
        os._exit(FAILED)


WAIT_MS = 200
"""How long a reader of a full pipe or terminal may take to make room; then the rest of the text is dropped."""


def show_text(text: str, *, on_stdout: bool = False) -> None:
    """Write a line; it is lost if the file is closed or full, or its reader has gone or stopped."""
    show_bytes(f"{text}\n".encode(errors="replace"), on_stdout=on_stdout)


def show_bytes(data: bytes, *, on_stdout: bool = False) -> None:
    # None if it was closed at start; its descriptor may now belong to another file.
    file = sys.stdout if on_stdout else sys.stderr
    if file is None:
        return
    rest = memoryview(data)
    try:
        fd = file.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        # A ready descriptor accepts this many bytes without blocking.
        while rest and any(event & select.POLLOUT for _, event in poll.poll(WAIT_MS)):
            rest = rest[os.write(fd, rest[: select.PIPE_BUF]) :]
    except (OSError, ValueError, io.UnsupportedOperation):  # closed since, or not a file of the system
        return
