"""What a process writes to stderr, read back as lines of JSON."""

import contextlib
import io
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog

from services.runtime.process import logs
from services.runtime.process.logs import WAITING_BYTES_MAX, LogWriter

Written = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def written() -> Generator[Written]:
    """Configure logging as in a process, at INFO; undo it afterwards."""
    root, level = logging.getLogger(), logging.getLogger().level
    before = list(root.handlers)
    root.handlers.clear()  # configure would close those of pytest
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        logs.configure_logging("INFO", "memory")
    yield lambda: [orjson.loads(line) for line in stderr.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_line_is_one_json_object_with_level_time_service_and_context(written: Written) -> None:
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        structlog.get_logger().info("rpc done", code="OK", note="two\nlines 水")
    (line,) = written()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "rpc done",
        "level": "info",
        "service": "memory",
        "request_id": "r-1",
        "code": "OK",
        "note": "two\nlines 水",
    }


def test_lines_below_the_level_are_not_written(written: Written) -> None:
    structlog.get_logger().debug("delta")
    assert written() == []


def test_an_exception_has_a_traceback_without_local_variables(written: Written) -> None:
    def fail(prompt: str) -> None:
        raise KeyError("no such key")

    try:
        fail(prompt="the user's own words")
    except KeyError:
        structlog.get_logger().exception("rpc failed")
    (line,) = written()
    (trace,) = line["exception"]
    assert (trace["exc_type"], trace["exc_value"]) == ("KeyError", "'no such key'")
    assert [frame["name"] for frame in trace["frames"]][-1] == "fail"
    assert "own words" not in orjson.dumps(line).decode()


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"\xff", ValueError("x"), {"a": object()}, {1: 2}, 1 << 70, "\udc80"]
)
def test_a_value_that_is_not_json_is_shown_in_some_form(value: object, written: Written) -> None:
    structlog.get_logger().info("odd", value=value)
    (line,) = written()
    assert (line["event"], line["level"], line["service"]) == ("odd", "info", "memory")
    assert line["value"]


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL, 35, 99])
def test_messages_of_libraries_are_written_in_our_form(level: int, written: Written) -> None:
    logging.getLogger("lib").log(level, "took %s s", 3)
    (line,) = written()
    assert (line["event"], line["logger_name"], line["said"]) == ("library said", "lib", "took 3 s")
    assert line["level"] in ("warning", "error", "critical")


def test_a_librarys_exception_keeps_its_traceback_and_its_info_is_omitted(written: Written) -> None:
    logging.getLogger("lib").info("chatter")
    try:
        raise KeyError("k")
    except KeyError:
        logging.getLogger("lib").exception("failed")
    (line,) = written()
    assert line["exception"][0]["exc_type"] == "KeyError"


def test_a_closed_standard_error_loses_only_the_lines() -> None:
    logging_to_nowhere = """
import structlog
from services.runtime.process import logs
logs.configure_logging("INFO", "memory")
structlog.get_logger().error("nobody reads this")
print("went on")
"""
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", logging_to_nowhere]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout == "went on\n"


def test_an_unknown_level_is_rejected_naming_it() -> None:
    with pytest.raises(ValueError, match="log level 'LOUD': expected one of DEBUG, INFO, WARNING, ERROR"):
        logs.configure_logging("LOUD", "memory")


def make_writer(fd: int) -> LogWriter:
    return LogWriter(fd, lambda lost: f"lost {lost}\n")


def write_line(writer: LogWriter, text: str) -> None:
    writer.write(f"{text}\n")
    writer.flush()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            continue


def read_all(fd: int) -> bytes:
    data = b""
    try:
        while piece := os.read(fd, 1 << 20):
            data += piece
    except BlockingIOError:
        pass
    return data


def test_lines_wait_for_a_reader_and_arrive_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    writer = make_writer(fd)
    lines = [f"{index} " + "x" * 5000 for index in range(100)]
    for line in lines:
        write_line(writer, line)
    output = b""
    while piece := read_all(reader):
        output += piece
        writer.flush()
    assert output.decode().splitlines() == lines


def test_lines_beyond_the_limit_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    writer = make_writer(fd)
    line = "x" * 100_000
    for _ in range(WAITING_BYTES_MAX // len(line) + 10):
        write_line(writer, line)
    output = b""
    while piece := read_all(reader):
        output += piece
        writer.flush()
    *lines, notice = output.decode().splitlines()
    assert set(lines) == {line}
    assert notice == f"lost {WAITING_BYTES_MAX // len(line) + 10 - len(lines)}"


def test_a_file_at_its_size_limit_loses_lines_and_keeps_the_next_ones_whole(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    writer = make_writer(fd)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    write_line(writer, "first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        for _ in range(3):
            write_line(writer, "lost line")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    write_line(writer, "next")
    os.close(fd)
    first, torn, following, notice = (tmp_path / "log").read_text().splitlines()
    assert (first, torn, following, notice) == ("first", "lo", "next", "lost 3")


def test_a_lone_surrogate_is_escaped(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    write_line(make_writer(fd), "a\udc80b")
    os.close(fd)
    assert (tmp_path / "log").read_text() == "a\\udc80b\n"
