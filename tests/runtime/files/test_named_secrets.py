"""Secrets that configuration names by their location."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.runtime.files.named_secrets import BYTES_MAX, read_secret

ENV = {"KEY": "sk-1\n", "EMPTY": " "}


@pytest.mark.parametrize(("name", "secret"), [("env:KEY", "sk-1"), ("env:EMPTY", ""), ("env:UNSET", "")])
def test_a_variable_is_read_without_surrounding_space(name: str, secret: str) -> None:
    assert read_secret(name, ENV) == secret


@pytest.mark.parametrize(
    ("content", "secret", "problem"),
    [
        (b"\xef\xbb\xbfsk-1\r\n", "sk-1", ""),
        (b"\n", "", ""),
        (None, "", ""),
        (b"\xff\xfes\0", "", "not UTF-8"),
        (b"a" * (BYTES_MAX + 1), "", "larger than"),
    ],
)
def test_an_unreadable_file_is_logged_and_counts_as_unset(
    tmp_path: Path, content: bytes | None, secret: str, problem: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with capture_logs() as logs:
        assert read_secret(f"file:{file}", {}) == secret
    assert [line["problem"].startswith(problem) for line in logs] == [True] * bool(problem)


def test_a_folder_is_no_secret(tmp_path: Path) -> None:
    with capture_logs() as logs:
        assert read_secret(f"file:{tmp_path}", {}) == ""
    assert [line["file"] for line in logs] == [str(tmp_path)]
