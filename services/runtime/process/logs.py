"""Logging: one JSON object per line on stderr, with ids from context variables.

Event names are lower-case constants ("rpc done"); facts are fields. Logging neither raises nor blocks: a full disk or a
closed reader is no reason to fail the work that logs. Lines that cannot be written are dropped, and counted in a
separate line once there is room.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog
from structlog.tracebacks import ExceptionDictTransformer

from services.runtime.telemetry import spans

SERVICE: ContextVar[str] = ContextVar("SERVICE")
"""Service of a log line, if a process has several; otherwise the process's own name."""

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def configure_logging(level: str, service: str, *, is_final: bool = False) -> None:
    """Write log lines from `level` up to standard error. With `is_final`, loggers keep this configuration."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: expected one of {', '.join(LEVELS)}")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _logger, _method, event: {**event, **spans.get_log_fields()},
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            lambda _logger, _method, event: {**event, "service": SERVICE.get(service)},
            # Without the frames' local variables, which include users' requests and messages.
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(serializer=_dump_event),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.WriteLoggerFactory(_open_log(service)),
        cache_logger_on_first_use=is_final,
    )
    logging.basicConfig(handlers=[_ForwardHandler()], level=logging.WARNING, force=True)


@contextmanager
def naming_service(service: str) -> Generator[None]:
    """Log lines inside the block as those of `service`."""
    token = SERVICE.set(service)
    try:
        yield
    finally:
        SERVICE.reset(token)


def _open_log(service: str) -> Any:
    """Return standard error as a file that never fails; a file in memory, set by tests, is used unchanged."""
    if sys.stderr is None:  # it was closed at the start
        return open(os.devnull, "w", encoding="utf-8")
    try:
        fd = sys.stderr.fileno()
    except io.UnsupportedOperation:
        return sys.stderr

    def make_notice(lost: int) -> str:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        event = {"event": "log lines lost", "lines": lost, "level": "warning", "timestamp": at, "service": service}
        return _dump_event(event) + "\n"

    writer = LogWriter(fd, make_notice)
    atexit.register(writer.close)
    return writer


def _dump_event(event: Mapping[str, object], **_: object) -> str:
    try:
        return orjson.dumps(event, default=repr).decode()
    except TypeError:
        return orjson.dumps({name: _make_serializable(value) for name, value in event.items()}, default=repr).decode()


def _make_serializable(value: object) -> object:
    """Return `value`, or its text if JSON cannot hold it (a lone surrogate, a number over 64 bits)."""
    try:
        orjson.dumps(value, default=repr)
    except TypeError:
        return ascii(value)
    return value


class _ForwardHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        error = record.exc_info if record.exc_info and record.exc_info[0] else None
        level = min(record.levelno // 10 * 10, logging.CRITICAL)  # structlog knows no others
        logger.log(level, "library said", logger_name=record.name, said=record.getMessage(), exc_info=error)


WAITING_BYTES_MAX = 1 << 20
"""Maximum bytes that wait for the reader of a pipe or terminal; further lines are dropped."""

CLOSE_S = 1.0
"""How long `close` waits for a reader to take the rest."""


class LogWriter:
    """The file of structlog's loggers, which hold a lock around `write` and `flush`."""

    def __init__(self, fd: int, make_notice: Callable[[int], str]) -> None:
        """Write to `fd`; `make_notice` returns the line that reports how many lines were lost since the start."""
        self._fd = fd
        self._make_notice = make_notice
        self._waiting = bytearray()
        self._lost = self._reported = 0
        self._is_torn = False
        """Whether the last line written is incomplete."""
        self._poll = None if stat.S_ISREG(os.fstat(fd).st_mode) else select.poll()
        if self._poll is not None:
            self._poll.register(fd, select.POLLOUT)

    def write(self, text: str) -> int:
        line = text.encode(errors="backslashreplace")
        if len(self._waiting) + len(line) > WAITING_BYTES_MAX:
            self._lost += 1
        else:
            self._waiting += line
        return len(text)

    def flush(self) -> None:
        """Write as much as the descriptor accepts now."""
        while self._waiting and (self._poll is None or self._poll.poll(0)):
            # A ready pipe or terminal accepts this many bytes without blocking.
            size = len(self._waiting) if self._poll is None else select.PIPE_BUF
            try:
                written = os.write(self._fd, memoryview(self._waiting)[:size].tobytes())
            except BlockingIOError:
                return
            except OSError:
                # A line break at the beginning only ends an earlier torn line.
                self._lost += self._waiting.count(b"\n") - self._waiting.startswith(b"\n")
                self._waiting.clear()
                if self._is_torn:
                    self._waiting += b"\n"
                return
            self._is_torn = self._waiting[written - 1] != ord("\n")
            del self._waiting[:written]
            if not self._waiting and self._lost > self._reported:
                self._reported = self._lost
                self.write(self._make_notice(self._lost))

    def close(self) -> None:
        """Wait until everything is written, for CLOSE_S at most."""
        until_s = time.monotonic() + CLOSE_S
        self.flush()
        while self._waiting and time.monotonic() < until_s:
            time.sleep(0.01)
            self.flush()
