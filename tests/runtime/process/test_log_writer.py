"""Log lines to descriptors that fail, are full, and recover."""

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.runtime.process.logs import WAITING_BYTES_MAX, LogWriter


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
    seen = b""
    while piece := read_all(reader):
        seen += piece
        writer.flush()
    assert seen.decode().splitlines() == lines


def test_what_is_too_much_is_dropped_and_counted(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    writer = make_writer(fd)
    line = "x" * 100_000
    for _ in range(WAITING_BYTES_MAX // len(line) + 10):
        write_line(writer, line)
    seen = b""
    while piece := read_all(reader):
        seen += piece
        writer.flush()
    *lines, notice = seen.decode().splitlines()
    assert set(lines) == {line}
    assert notice == f"lost {WAITING_BYTES_MAX // len(line) + 10 - len(lines)}"


def test_a_file_that_may_not_grow_loses_lines_and_has_the_next_ones_whole(tmp_path: Path) -> None:
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


def test_a_lone_surrogate_is_shown_somehow(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    write_line(make_writer(fd), "a\udc80b")
    os.close(fd)
    assert (tmp_path / "log").read_text() == "a\\udc80b\n"
