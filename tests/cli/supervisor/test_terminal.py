"""Output of `headrace up` when its standard streams are closed, full, or not read."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.programs import run_to_end

SAYING = """
import pathlib, sys
other = open(sys.argv[1], "w")
from headrace.cli.supervisor.child_process import show_text, show_bytes
show_text("a line")
show_text("another", on_stdout=True)
show_bytes(b"output of a service\\n")
pathlib.Path(sys.argv[1] + ".said").touch()
"""


async def run_with_redirections(tmp_path: Path, redirections: str) -> tuple[str, str, str]:
    """Return standard output, standard error, and the content of a file that the process opened first."""
    other = tmp_path / "other"
    command = ("sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-c", SAYING, str(other))
    code, stdout, stderr = await run_to_end(*command)
    assert code == 0, stderr.decode()
    assert (tmp_path / "other.said").exists()
    return stdout.decode(), stderr.decode(), other.read_text()


async def test_texts_go_to_standard_output_and_error(tmp_path: Path) -> None:
    assert await run_with_redirections(tmp_path, "") == ("another\n", "a line\noutput of a service\n", "")


@pytest.mark.parametrize(
    ("redirections", "stdout", "stderr"),
    [
        ("2>&-", "another\n", ""),
        ("1>&-", "", "a line\noutput of a service\n"),
        ("0<&- 1>&- 2>&-", "", ""),
        ("1>/dev/full 2>/dev/full", "", ""),
    ],
)
async def test_a_text_for_a_closed_or_full_stream_is_lost_and_reaches_no_other_file(
    tmp_path: Path, redirections: str, stdout: str, stderr: str
) -> None:
    assert await run_with_redirections(tmp_path, redirections) == (stdout, stderr, "")


async def test_a_stream_that_is_not_read_does_not_block_the_process(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    try:
        code, _, _ = await run_to_end(sys.executable, "-c", SAYING, tmp_path / "other", stderr=writer, timeout_s=100)
        assert code == 0
    finally:
        os.close(reader)
        os.close(writer)
    assert (tmp_path / "other.said").exists()
