"""What a process writes on stderr: read back as lines of JSON."""

import contextlib
import io
import logging
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any

import orjson
import pytest
import structlog

from services.runtime.process import logs

Written = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def written() -> Generator[Written]:
    """Logging as in a process, at INFO; undone afterwards."""
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


def test_what_is_below_the_level_is_not_written(written: Written) -> None:
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
def test_a_value_that_is_no_json_is_shown_somehow(value: object, written: Written) -> None:
    structlog.get_logger().info("odd", value=value)
    (line,) = written()
    assert (line["event"], line["level"], line["service"]) == ("odd", "info", "memory")
    assert line["value"]


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL, 35, 99])
def test_what_libraries_say_comes_out_in_our_form(level: int, written: Written) -> None:
    logging.getLogger("lib").log(level, "took %s s", 3)
    (line,) = written()
    assert (line["event"], line["logger_name"], line["said"]) == ("library said", "lib", "took 3 s")
    assert line["level"] in ("warning", "error", "critical")


def test_a_librarys_exception_keeps_its_traceback_and_its_chatter_is_left_out(written: Written) -> None:
    logging.getLogger("lib").info("chatter")
    try:
        raise KeyError("k")
    except KeyError:
        logging.getLogger("lib").exception("failed")
    (line,) = written()
    assert line["exception"][0]["exc_type"] == "KeyError"


def test_a_closed_standard_error_loses_the_lines_and_nothing_else() -> None:
    logging_to_nowhere = """
import structlog
from services.runtime.process import logs
logs.configure_logging("INFO", "memory")
structlog.get_logger().error("nobody reads this")
print("went on")
"""
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", logging_to_nowhere]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout == "went on\n"


def test_an_unknown_level_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="log level 'LOUD': expected one of DEBUG, INFO, WARNING, ERROR"):
        logs.configure_logging("LOUD", "memory")
