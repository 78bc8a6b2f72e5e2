"""The Range header."""

from __future__ import annotations

import pytest

from services.facade.requests.byte_range import ByteRange, parse_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=5-9", ByteRange(5, 5)),
        (" bytes=5- ", ByteRange(5, 0)),
        ("bytes=-7", ByteRange(-7, 0)),
        (None, None),
        ("", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=-0", None),
        ("bytes=9-5", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("bytes=a-b", None),
        ("bytes=+1-2", None),
        ("bytes=1.0-2", None),
        ("bytes=٣-٤", None),
        ("bytes=" + "9" * 30 + "-", None),
    ],
)
def test_one_range_of_bytes_is_understood_and_nothing_else(header: str | None, expected: ByteRange | None) -> None:
    assert parse_range(header) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(ByteRange(0, 1), (0, 1)), (ByteRange(5, 0), (5, 10)), (ByteRange(5, 99), (5, 10)), (ByteRange(-99, 0), (0, 10))],
)
def test_a_range_lies_within_its_file(asked: ByteRange, expected: tuple[int, int]) -> None:
    assert asked.resolve_range(10) == expected
